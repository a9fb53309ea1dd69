//! One sample on its way through the pipeline: a picture with work that is put off until it must be done.

use crate::decode::{Decoded, Image, Rect, Size};
use crate::error::{Error, ErrorKind, Result};

use super::normalize::Affine;
use super::scaler::{Scaler, Window};
use super::{SampleRng, canvas};

/// A buffer that one huge picture has grown above this is given back with the next sample.
const KEPT_BYTES: usize = 64 << 20;

/// What [`Sample::erase`] puts in a rectangle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fill {
    /// One value for each channel: levels 0 to 255 before the normalisation, elements of the output after it.
    Constant([f32; 3]),
    /// A standard normal number for each element; after the normalisation only.
    Normal(SampleRng),
}

/// A picture and its label.
///
/// Flips, the normalisation and what is erased after it are only noted here: one last pass over the pixels does
/// them all while it writes the slot. A step that asks for [`image`](Sample::image) or
/// [`image_mut`](Sample::image_mut) gets the pixels with everything noted so far carried out.
///
/// Buffers are kept from sample to sample. Later versions may carry masks and boxes, which the geometric methods will
/// move along; so prefer [`crop_resize`](Sample::crop_resize) and its like to moving pixels by hand.
#[derive(Debug, Default)]
pub struct Sample {
    image: Image,
    /// Set while `image` holds a part of the picture, or the picture at reduced size. In coordinates before `flips`.
    part: Option<Decoded>,
    pub(super) flips: Flips,
    pub(super) affine: Option<Affine>,
    pub(super) erased: Vec<Erasure>,
    label: i64,
    /// Where steps write that cannot work in place; then it is swapped with `image`.
    spare: Image,
    floats: Vec<f32>,
    scaler: Scaler,
}

/// Mirrorings that are still to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flips {
    pub(super) horizontal: bool,
    pub(super) vertical: bool,
}

/// A rectangle of the output with other content.
#[derive(Debug)]
pub(super) struct Erasure {
    pub(super) rect: Rect,
    pub(super) fill: Fill,
}

impl Sample {
    /// Creates a sample from a whole picture and its label.
    pub fn new(image: Image, label: i64) -> Self {
        Sample { image, label, ..Sample::default() }
    }

    /// Starts a new sample in the same buffers and returns the image to decode into.
    pub(super) fn begin(&mut self, label: i64) -> &mut Image {
        self.label = label;
        self.part = None;
        self.flips = Flips::default();
        self.affine = None;
        self.erased.clear();
        for buffer in [&mut self.image.pixels, &mut self.spare.pixels] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.floats.capacity() * size_of::<f32>() > KEPT_BYTES {
            self.floats = Vec::new();
        }
        &mut self.image
    }

    /// Notes which part of the picture has been decoded.
    pub(super) fn decoded(&mut self, decoded: Decoded) {
        let whole = decoded.covers == Rect::whole(decoded.full) && self.image.size() == decoded.full;
        self.part = (!whole).then_some(decoded);
    }

    /// Returns the size of the whole picture as it now is, even when only a part of it was decoded.
    pub fn size(&self) -> Size {
        self.part.map_or(self.image.size(), |part| part.full)
    }

    /// Returns the label.
    pub fn label(&self) -> i64 {
        self.label
    }

    /// Sets the label.
    pub fn set_label(&mut self, label: i64) {
        self.label = label;
    }

    /// Returns whether the normalisation has been noted, after which pixels can only be flipped and erased.
    pub fn is_normalized(&self) -> bool {
        self.affine.is_some()
    }

    /// Returns the pixels, after carrying out pending flips. Where only a part was decoded, the rest is black.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] after the normalisation, or when the picture was decoded at reduced size because the
    /// pipeline's first step asked for that.
    pub fn image(&mut self) -> Result<&Image> {
        self.image_mut().map(|image| &*image)
    }

    /// Returns the pixels to be changed, after carrying out pending flips. The picture may be given another size.
    ///
    /// # Errors
    /// As [`image`](Sample::image).
    pub fn image_mut(&mut self) -> Result<&mut Image> {
        self.materialise("image")?;
        Ok(&mut self.image)
    }

    /// Returns the pixels to be changed, as [`image_mut`](Sample::image_mut), and a buffer that is kept.
    pub(super) fn image_and_floats(&mut self) -> Result<(&mut Image, &mut Vec<f32>)> {
        self.materialise("image")?;
        Ok((&mut self.image, &mut self.floats))
    }

    /// Mirrors left and right.
    pub fn flip_horizontal(&mut self) {
        self.flips.horizontal = !self.flips.horizontal;
        self.mirror_erased(true, false);
    }

    /// Mirrors top and bottom.
    pub fn flip_vertical(&mut self) {
        self.flips.vertical = !self.flips.vertical;
        self.mirror_erased(false, true);
    }

    fn mirror_erased(&mut self, horizontal: bool, vertical: bool) {
        let full = self.size();
        for erasure in &mut self.erased {
            erasure.rect = canvas::mirror(erasure.rect, full, horizontal, vertical);
        }
    }

    /// Cuts out `rect` and resizes it to `target`: bilinear, antialiased, reading no pixel outside `rect`.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] after the normalisation, or if `rect` or `target` is empty, or `rect` is not within
    /// the picture (or not within the part the pipeline's first step asked for, when that came at reduced size).
    pub fn crop_resize(&mut self, rect: Rect, target: Size) -> Result<()> {
        self.before_normalisation("crop_resize")?;
        let full = self.size();
        if !Rect::whole(full).contains(rect) || rect.size().pixels() == 0 || target.pixels() == 0 {
            return Err(Error::new(
                ErrorKind::Transform,
                format!("crop_resize of {rect:?} to {target:?} in a picture of {full:?}"),
            ));
        }
        self.carry_out_flips();
        if self.part.is_some_and(|part| !part.covers.contains(rect)) {
            self.materialise("crop_resize")?;
        }
        let window = self.window(rect);
        if self.part.is_none() && rect == Rect::whole(full) && target == full {
            return Ok(());
        }
        self.scaler.run(&self.image, window, target, &mut self.spare)?;
        self.replace_by_spare();
        Ok(())
    }

    /// Resizes the whole picture, as [`crop_resize`](Sample::crop_resize).
    ///
    /// # Errors
    /// As [`crop_resize`](Sample::crop_resize).
    pub fn resize(&mut self, target: Size) -> Result<()> {
        self.crop_resize(Rect::whole(self.size()), target)
    }

    /// Cuts out a rectangle of `size` whose corner is at (`left`, `top`), which may reach outside the picture: there
    /// pixels are `fill`.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] after the normalisation, or if `size` is empty, or as [`image`](Sample::image).
    pub fn crop(&mut self, left: i64, top: i64, size: Size, fill: [u8; 3]) -> Result<()> {
        self.before_normalisation("crop")?;
        if size.pixels() == 0 {
            return Err(Error::new(ErrorKind::Transform, format!("crop to {size:?}")));
        }
        self.carry_out_flips();
        let covers = self.part.filter(|part| part.covers.size() == self.image.size()).map(|part| part.covers);
        let (mut x, mut y) = (left, top);
        match (covers, whole_rect(left, top, size)) {
            (Some(covers), Some(rect)) if covers.contains(rect) => {
                (x, y) = (left - i64::from(covers.left), top - i64::from(covers.top));
            }
            _ => self.materialise("crop")?,
        }
        canvas::crop(&self.image, x, y, size, fill, &mut self.spare);
        self.replace_by_spare();
        Ok(())
    }

    /// Puts other content in `rect`.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] if `rect` is not within the picture; [`ErrorKind::Config`] for [`Fill::Normal`] before
    /// the normalisation.
    pub fn erase(&mut self, rect: Rect, fill: Fill) -> Result<()> {
        let full = self.size();
        if !Rect::whole(full).contains(rect) {
            return Err(Error::new(ErrorKind::Transform, format!("erase {rect:?} in a picture of {full:?}")));
        }
        if self.is_normalized() {
            self.erased.push(Erasure { rect, fill });
            return Ok(());
        }
        let Fill::Constant(value) = fill else {
            return Err(Error::new(ErrorKind::Config, "normal noise was to be put among 8-bit pixels")
                .with_remedy("move the step that erases behind Normalize, or erase with a constant"));
        };
        // Erased before pending flips, so at the mirrored place.
        let flips = self.flips;
        self.flips = Flips::default();
        let done = self.image_mut().map(|image| {
            let place = canvas::mirror(rect, full, flips.horizontal, flips.vertical);
            canvas::fill(image, place, value.map(|level| libm::rintf(level).clamp(0.0, 255.0) as u8));
        });
        self.flips = flips;
        done
    }

    /// Notes the normalisation.
    pub(super) fn set_affine(&mut self, affine: Affine) -> Result<()> {
        self.before_normalisation("Normalize")?;
        self.affine = Some(affine);
        Ok(())
    }

    /// Returns the pixels as the last pass reads them: all but flips and normalisation carried out.
    pub(super) fn for_output(&mut self) -> Result<&Image> {
        self.place_on_canvas("the output")?;
        let Image { width, height, ref pixels } = self.image;
        if pixels.len() as u64 != self.image.size().pixels() * 3 {
            let text = format!("a step left {} bytes in a picture of {width}x{height}", pixels.len());
            return Err(Error::new(ErrorKind::Transform, text)
                .with_remedy("change a picture's size with Image::reset"));
        }
        Ok(&self.image)
    }

    fn before_normalisation(&self, what: &str) -> Result<()> {
        if self.affine.is_none() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Transform, format!("{what} after the normalisation"))
            .with_remedy("put Normalize behind every step that reads or moves pixels"))
    }

    fn materialise(&mut self, what: &str) -> Result<()> {
        self.before_normalisation(what)?;
        self.carry_out_flips();
        self.place_on_canvas(what)
    }

    fn carry_out_flips(&mut self) {
        let Flips { horizontal, vertical } = std::mem::take(&mut self.flips);
        if horizontal {
            canvas::flip_horizontal(&mut self.image);
        }
        if vertical {
            canvas::flip_vertical(&mut self.image);
        }
        if let Some(part) = &mut self.part {
            part.covers = canvas::mirror(part.covers, part.full, horizontal, vertical);
        }
    }

    /// Puts a decoded part at its place in a picture of full size.
    fn place_on_canvas(&mut self, what: &str) -> Result<()> {
        let Some(Decoded { full, covers }) = self.part else { return Ok(()) };
        if covers.size() != self.image.size() {
            let text = format!(
                "{what} needs the whole picture, but only {covers:?} of {full:?} was decoded, as {:?}",
                self.image.size()
            );
            return Err(Error::new(ErrorKind::Transform, text).with_remedy(
                "a step whose request() is not None must begin with crop_resize of that region",
            ));
        }
        canvas::crop(
            &self.image,
            -i64::from(covers.left),
            -i64::from(covers.top),
            full,
            [0; 3],
            &mut self.spare,
        );
        self.replace_by_spare();
        Ok(())
    }

    /// Returns where `rect` lies in the pixels at hand.
    fn window(&self, rect: Rect) -> Window {
        let part = self.part.unwrap_or(Decoded { full: self.size(), covers: Rect::whole(self.size()) });
        let covers = part.covers;
        // Exactly 1 when nothing was scaled, so that whole pixels stay whole.
        let (x, y) = (
            f64::from(self.image.width) / f64::from(covers.width),
            f64::from(self.image.height) / f64::from(covers.height),
        );
        Window {
            left: f64::from(rect.left - covers.left) * x,
            top: f64::from(rect.top - covers.top) * y,
            width: f64::from(rect.width) * x,
            height: f64::from(rect.height) * y,
        }
    }

    fn replace_by_spare(&mut self) {
        std::mem::swap(&mut self.image, &mut self.spare);
        self.part = None;
    }
}

/// Returns the rectangle if it starts at no negative coordinate.
fn whole_rect(left: i64, top: i64, size: Size) -> Option<Rect> {
    let (left, top) = (u32::try_from(left).ok()?, u32::try_from(top).ok()?);
    Some(Rect { left, top, width: size.width, height: size.height })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(width: u32, height: u32) -> Image {
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 9])).collect();
        Image { width, height, pixels }
    }

    /// The part of `rect` as a decoder that skips the rest delivers it.
    fn partial(whole: &Image, rect: Rect) -> Sample {
        let mut sample = Sample::default();
        let image = sample.begin(1);
        canvas::crop(whole, rect.left.into(), rect.top.into(), rect.size(), [0; 3], image);
        sample.decoded(Decoded { full: whole.size(), covers: rect });
        sample
    }

    #[test]
    fn a_part_behaves_as_the_whole_picture_within_its_borders() {
        let whole = gradient(50, 40);
        let covers = Rect { left: 10, top: 5, width: 30, height: 20 };
        let inner = Rect { left: 12, top: 9, width: 17, height: 11 };
        for (horizontal, vertical) in [(false, false), (true, false), (false, true), (true, true)] {
            let results = [Sample::new(whole.clone(), 1), partial(&whole, covers)].map(|mut sample| {
                assert_eq!(sample.size(), Size::new(50, 40));
                if horizontal {
                    sample.flip_horizontal();
                }
                if vertical {
                    sample.flip_vertical();
                }
                let place = canvas::mirror(inner, whole.size(), horizontal, vertical);
                sample.crop_resize(place, Size::new(8, 9)).unwrap();
                sample.image().unwrap().clone()
            });
            assert_eq!(results[0], results[1]);
        }
        let mut part = partial(&whole, covers);
        part.crop(12, 9, Size::new(17, 11), [0; 3]).unwrap();
        let mut cut = Sample::new(whole.clone(), 1);
        cut.crop(12, 9, Size::new(17, 11), [0; 3]).unwrap();
        assert_eq!(part.image().unwrap(), cut.image().unwrap());
    }

    #[test]
    fn the_undecoded_rest_of_a_picture_is_black() {
        let whole = gradient(50, 40);
        let covers = Rect { left: 10, top: 5, width: 30, height: 20 };
        let mut part = partial(&whole, covers);
        let image = part.image().unwrap();
        let at = |x: usize, y: usize| image.pixels.as_chunks::<3>().0[y * 50 + x];
        assert_eq!(
            (image.size(), at(9, 5), at(10, 5), at(39, 24)),
            (whole.size(), [0; 3], [10, 5, 9], [39, 24, 9])
        );
    }

    #[test]
    fn a_picture_decoded_at_half_size_can_be_cut_and_not_looked_at() {
        let half = |sample: &mut Sample| {
            *sample.begin(0) = gradient(25, 20);
            sample.decoded(Decoded { full: Size::new(50, 40), covers: Rect::whole(Size::new(50, 40)) });
        };
        let mut sample = Sample::default();
        half(&mut sample);
        assert!(sample.image().unwrap_err().remedy().unwrap().contains("crop_resize"));
        half(&mut sample);
        sample.crop_resize(Rect { left: 10, top: 20, width: 20, height: 10 }, Size::new(10, 5)).unwrap();
        let image = sample.image().unwrap();
        assert_eq!((image.size(), &image.pixels[..3]), (Size::new(10, 5), &[5, 10, 9][..]));
        half(&mut sample);
        sample.crop_resize(Rect { left: 11, top: 21, width: 21, height: 11 }, Size::new(7, 3)).unwrap();
        assert_eq!(sample.image().unwrap().size(), Size::new(7, 3));
    }

    #[test]
    fn rectangles_outside_the_picture_are_refused() {
        let mut sample = Sample::new(gradient(5, 4), 0);
        let outside = Rect { left: 1, top: 0, width: 5, height: 4 };
        let huge = Rect { left: u32::MAX, top: 0, width: u32::MAX, height: 1 };
        let empty = Rect { left: 0, top: 0, width: 0, height: 4 };
        for rect in [outside, huge, empty] {
            assert!(sample.crop_resize(rect, Size::new(2, 2)).is_err());
        }
        assert!(sample.crop_resize(Rect::whole(Size::new(5, 4)), Size::new(0, 2)).is_err());
        assert!(sample.erase(outside, Fill::Constant([0.0; 3])).is_err());
        assert!(sample.crop(0, 0, Size::new(0, 1), [0; 3]).is_err());
    }
}
