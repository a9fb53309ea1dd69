//! Workers that lie: they write random words over their rings and status, and send rubbish over their socket. The host
//! gives errors and replacements, and never panics, hangs, or passes on a wrong batch.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its body does

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{Dice, Seen, alone, count, samples, seen};
use forebay::dataset::{Payload, WorkerInfo};
use forebay::prelude::*;
use forebay::{Event, LoaderBuilder, Result};
use serde::{Deserialize, Serialize};

forebay::test_support!();

const LEN: u64 = 400;

/// How a worker lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Lie {
    /// Not at all.
    None,
    /// It writes words over its page before some of its samples.
    Now,
    /// A thread of it writes all the time.
    Always,
    /// It sends bytes that are no message.
    Socket,
}

/// Pictures whose reader lies, one sample in `rarity`.
#[derive(Debug, Serialize, Deserialize)]
struct Liar {
    lie: Lie,
    rarity: u64,
    seed: u64,
    #[serde(skip)]
    worker: u64,
    #[serde(skip)]
    reads: u64,
    #[serde(skip)]
    tongue: Option<Tongue>,
}

/// Where a lying worker writes.
#[derive(Debug)]
struct Tongue {
    memory: Arc<File>,
    page: (u64, u64),
    state: u64,
}

impl Tongue {
    /// Finds the worker's page among its maps.
    fn new(seed: u64) -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line =
            maps.lines().find(|line| line.contains("memfd:forebay") && line.contains("-worker")).unwrap();
        let (start, rest) = line.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
        Tongue { memory: Arc::new(memory), page: (start, end), state: seed }
    }

    /// Changes one word: to chance, by one bit, to something small, or to what another place holds.
    fn lie(&mut self) {
        let mut dice = Dice::seeded(self.state);
        let (start, end) = self.page;
        let words = (end - start) / 8;
        let place = |dice: &mut Dice| start + 8 * dice.below(words);
        let (at, from) = (place(&mut dice), place(&mut dice));
        let read = |at: u64| {
            let mut bytes = [0; 8];
            self.memory.read_exact_at(&mut bytes, at).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let word = match dice.below(4) {
            0 => dice.word(),
            1 => read(at) ^ (1 << dice.below(64)),
            2 => dice.below(70),
            _ => read(from),
        };
        self.memory.write_all_at(&word.to_ne_bytes(), at).unwrap();
        self.state = dice.word();
    }
}

impl Liar {
    fn tell(&mut self) {
        let seed = self.seed ^ self.worker.wrapping_mul(0x9e37_79b9) ^ (u64::from(std::process::id()) << 20);
        match self.lie {
            Lie::None => {}
            Lie::Now => {
                let tongue = self.tongue.get_or_insert_with(|| Tongue::new(seed));
                for _ in 0..64 {
                    tongue.lie();
                }
            }
            Lie::Always => {
                if self.tongue.is_none() {
                    self.tongue = Some(Tongue::new(seed));
                    let mut other = Tongue::new(seed ^ 0xffff_0000);
                    thread::spawn(move || {
                        loop {
                            (0..50).for_each(|_| other.lie());
                            thread::sleep(Duration::from_micros(200));
                        }
                    });
                }
            }
            Lie::Socket => {
                let socket = control_socket();
                let mut dice = Dice::seeded(seed ^ (self.reads << 40));
                let rubbish: Vec<u8> = (0..8).flat_map(|_| dice_word(&mut dice)).collect();
                let _ = (&socket).write_all(&rubbish);
            }
        }
    }
}

/// The worker's end of the socket to its host: the first socket that it has.
#[allow(unsafe_code)]
fn control_socket() -> UnixStream {
    let is_socket = |fd: &i32| {
        std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    };
    let fd = (3..32).find(is_socket).unwrap();
    // SAFETY: the worker keeps its socket open for as long as it lives.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    fd.try_clone_to_owned().map(UnixStream::from).unwrap()
}

fn dice_word(dice: &mut Dice) -> [u8; 8] {
    // Kinds of messages that exist, with the rest left to chance.
    let word = if dice.below(2) == 0 { dice.below(8) } else { dice.word() };
    word.to_ne_bytes()
}

#[typetag::serde]
impl Dataset for Liar {
    fn len(&self) -> u64 {
        LEN
    }

    fn start(&mut self, info: &WorkerInfo) -> Result<()> {
        self.worker = u64::from(info.worker);
        Ok(())
    }

    fn read(&mut self, index: u64, record: &mut Record) -> Result<()> {
        // Not by index: the sample made again by the successor is mostly told the truth of.
        self.reads += 1;
        let life = (u64::from(std::process::id()) << 32) ^ self.reads;
        let mut dice = Dice::seeded(self.seed ^ life.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        dice.word();
        if self.lie != Lie::None && dice.below(self.rarity) == 0 {
            self.tell();
        }
        record.bytes.extend((0..300).map(|at| (index * 7 + at) as u8));
        record.payload = Payload::Rgb8 { width: 10, height: 10 };
        record.label = index as i64;
        Ok(())
    }

    fn image_size(&self) -> Option<(u32, u32)> {
        Some((10, 10))
    }

    fn fingerprint(&self) -> u64 {
        1
    }
}

fn builder(lie: Lie, seed: u64) -> LoaderBuilder {
    let rarity = match lie {
        Lie::Always => 300,
        _ => 60,
    };
    Loader::builder(Liar { lie, rarity, seed, worker: 0, reads: 0, tongue: None })
        .output(DType::U8, Layout::Nhwc)
        .batch_size(8)
        .num_workers(3)
        .shuffle(true)
        .max_restarts(u32::MAX)
        .timeout(Duration::from_millis(1500))
}

#[test]
fn lies_of_workers_cost_workers_and_no_batch_is_wrong() {
    alone("lies_of_workers_cost_workers_and_no_batch_is_wrong", 1500, || {
        let mut dice = Dice::new();
        let wanted = count("FOREBAY_TEST_LIARS", 40) as u64;
        for (transport, lie) in [
            (Transport::Memfd, Lie::Now),
            (Transport::Memfd, Lie::Always),
            (Transport::Memfd, Lie::Socket),
            (Transport::Heap, Lie::Now),
            (Transport::Heap, Lie::Socket),
        ] {
            let reference =
                |epoch| samples(builder(Lie::None, 0).num_workers(0).build().unwrap().epoch(epoch));
            let (replaced, counter) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let deaths = Arc::clone(&replaced);
            let loader = builder(lie, dice.word())
                .transport(transport)
                .on_event(move |event| {
                    let died = matches!(event, Event::WorkerDied { .. });
                    deaths.fetch_add(u64::from(died), Ordering::Relaxed);
                })
                .build()
                .unwrap();
            let (mut epoch, mut failed) = (0, 0);
            while replaced.load(Ordering::Relaxed) < wanted / 5 {
                let truth = reference(epoch);
                for batch in loader.epoch(epoch) {
                    counter.fetch_add(1, Ordering::Relaxed);
                    let batch = match batch {
                        Ok(batch) => batch,
                        Err(error) => {
                            assert!(error.index().is_some(), "an error of the loader: {error}");
                            failed += 1;
                            continue;
                        }
                    };
                    let got: Vec<Seen> = seen(&batch).collect();
                    let first = batch.position() as usize;
                    assert!(got == truth[first..first + got.len()], "{transport}, {lie:?}, epoch {epoch}");
                }
                epoch += 1;
            }
            println!(
                "{transport}, {lie:?}: {} workers replaced over {epoch} epochs, {failed} of {} batches failed",
                replaced.load(Ordering::Relaxed),
                counter.load(Ordering::Relaxed)
            );
        }
    });
}
