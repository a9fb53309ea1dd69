//! What is read from a JPEG's markers before its decoder sees it: the EXIF orientation and the frame header.

use super::{Orientation, Size};

/// The marker segments of a JPEG up to its first scan, as far as they matter here. Damage is not an error: what could not
/// be read is `None`, and the decoder proper has the last word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Markers {
    /// From the first EXIF segment that has one.
    pub(super) orientation: Option<Orientation>,
    pub(super) frame: Option<Frame>,
}

/// A JPEG's frame header (SOF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) size: Size,
    pub(super) components: u32,
    /// Arithmetic coding instead of Huffman's.
    pub(super) arithmetic: bool,
    pub(super) progressive: bool,
    /// The first scan does not hold all components.
    pub(super) split: bool,
    /// Width and height of an iMCU in pixels: 8 times the largest sampling factor.
    pub(super) imcu: Size,
    /// Samples of all components in one iMCU.
    pub(super) imcu_samples: u32,
}

impl Markers {
    /// Reads the segments before the first scan.
    pub(super) fn read(bytes: &[u8]) -> Markers {
        let mut markers = Markers::default();
        let mut rest = bytes.get(2..).unwrap_or_default();
        while let Some((code, segment, after)) = next_segment(rest) {
            match code {
                0xc0..=0xcf if !matches!(code, 0xc4 | 0xc8 | 0xcc) && markers.frame.is_none() => {
                    markers.frame = Frame::read(code, segment);
                }
                0xda => {
                    let alone = segment.first().map(|count| u32::from(*count));
                    if let (Some(frame), Some(components)) = (&mut markers.frame, alone) {
                        frame.split = components < frame.components;
                    }
                    break;
                }
                0xe1 if markers.orientation.is_none() => markers.orientation = orientation(segment),
                _ => {}
            }
            rest = after;
        }
        markers
    }
}

/// Returns where the end marker of the first picture is, after any number of scans.
#[cfg(feature = "turbo")]
pub(super) fn end_marker(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes.get(2..)?;
    loop {
        let start = marker(rest)?;
        if rest[start + 1] == 0xd9 {
            return Some(bytes.len() - rest.len() + start);
        }
        rest = next_segment(rest)?.2;
    }
}

impl Frame {
    fn read(code: u8, segment: &[u8]) -> Option<Frame> {
        let &[_, h1, h0, w1, w0, components, ref table @ ..] = segment else { return None };
        let table = table.get(..usize::from(components) * 3)?;
        let factors = || table.chunks_exact(3).map(|c| (u32::from(c[1] >> 4), u32::from(c[1] & 15)));
        Some(Frame {
            size: Size::new(u16::from_be_bytes([w1, w0]).into(), u16::from_be_bytes([h1, h0]).into()),
            components: components.into(),
            arithmetic: code >= 0xc9,
            progressive: matches!(code, 0xc2 | 0xca),
            split: false,
            imcu: Size::new(8 * factors().map(|f| f.0).max()?, 8 * factors().map(|f| f.1).max()?),
            imcu_samples: factors().map(|(h, v)| 64 * h * v).sum(),
        })
    }

    /// Returns whether coefficients of the whole picture have to be held in memory.
    pub(super) const fn buffered(&self) -> bool {
        self.progressive || self.split
    }
}

/// Returns the code and the content of the next marker segment, and what follows it. Stray bytes before it are skipped, as
/// libjpeg does; markers without a length cannot come here but for the end of the picture.
fn next_segment(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let start = marker(bytes)?;
    let (code, rest) = (bytes[start + 1], &bytes[start + 2..]);
    if matches!(code, 0x01 | 0xd0..=0xd7) {
        return Some((code, &[], rest));
    }
    if matches!(code, 0xd8 | 0xd9) {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    Some((code, rest.get(2..length)?, &rest[length..]))
}

fn marker(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0x00 | 0xff))
}

fn orientation(segment: &[u8]) -> Option<Orientation> {
    let chunk = segment.strip_prefix(b"Exif\0")?.get(1..)?; // the sixth byte is padding of any value
    image::metadata::Orientation::from_exif_chunk(chunk).and_then(|o| Orientation::from_exif(o.to_exif()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TIFF header and one directory with one entry, as EXIF has it.
    fn exif(big: bool, number: u16) -> Vec<u8> {
        let u16 = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let u32 = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut out = b"Exif\0\0".to_vec();
        out.extend(if big { b"MM" } else { b"II" });
        out.extend(u16(42));
        out.extend(u32(8));
        out.extend([u16(1), u16(0x112), u16(3)].concat());
        out.extend(u32(1));
        out.extend([u16(number), u16(0)].concat());
        out
    }

    fn jpeg(segments: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut out = vec![0xff, 0xd8];
        for (code, content) in segments {
            out.extend([0xff, *code]);
            out.extend((content.len() as u16 + 2).to_be_bytes());
            out.extend(content);
        }
        out
    }

    #[test]
    fn both_byte_orders_are_read_and_the_first_segment_that_has_one_wins() {
        for number in 1..=8 {
            for big in [false, true] {
                let bytes = jpeg(&[
                    (0xe0, b"JFIF\0".to_vec()),
                    (0xe1, b"http://ns.adobe.com/xap/1.0/\0".to_vec()),
                    (0xe1, exif(big, number)),
                    (0xe1, exif(big, 3)),
                ]);
                assert_eq!(Markers::read(&bytes).orientation.unwrap().exif(), number as u8);
            }
        }
    }

    #[test]
    fn broken_exif_is_no_orientation_and_never_a_panic() {
        for number in [0, 9, 0xffff] {
            assert!(Markers::read(&jpeg(&[(0xe1, exif(false, number))])).orientation.is_none());
        }
        let whole = jpeg(&[(0xe1, exif(true, 6))]);
        for length in 0..whole.len() {
            assert!(Markers::read(&whole[..length]).orientation.is_none(), "cut at {length}");
        }
        let mut outside = exif(false, 6);
        outside[10..14].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Markers::read(&jpeg(&[(0xe1, outside)])).orientation.is_none());
    }

    #[test]
    fn the_frame_header_gives_size_and_sampling() {
        let sof = vec![8, 0, 149, 0, 227, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1];
        let frame = |code, scan: &[u8]| {
            Markers::read(&jpeg(&[(code, sof.clone()), (0xda, scan.to_vec())])).frame.unwrap()
        };
        let baseline = frame(0xc0, &[3]);
        assert_eq!((baseline.size, baseline.imcu), (Size::new(227, 149), Size::new(16, 16)));
        assert_eq!((baseline.imcu_samples, baseline.components), (384, 3));
        assert!(!baseline.buffered() && !baseline.arithmetic);
        assert!(frame(0xc0, &[1]).buffered() && frame(0xc2, &[3]).buffered() && frame(0xca, &[3]).arithmetic);
    }
}
