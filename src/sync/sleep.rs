//! Who sleeps and must be woken: the flag between one that waits for messages and those that publish them.

use super::prim::{AtomicU32, Ordering, fence};

/// A flag in shared memory that says whether one side is about to block on its doorbell.
///
/// The sleeper calls [`announce`](Sleeper::announce), looks at its queues once more, blocks only if all are empty, and
/// calls [`awake`](Sleeper::awake) whether it blocked or not. A publisher publishes, then rings the bell if
/// [`must_wake`](Sleeper::must_wake). `README.md` proves that no message is then left lying before a sleeper.
///
/// All zero bytes mean awake.
#[derive(Debug)]
#[repr(C)]
pub struct Sleeper {
    /// Not 0 while the sleeper may be blocked and nobody has promised to ring. Every change is a swap that acquires
    /// and releases, so all changes happen one after the other; none of them is on the path of a side that is awake.
    sleeping: AtomicU32,
}

impl Sleeper {
    /// Creates one that is awake, in memory of this process.
    #[cfg(test)]
    pub fn new() -> Sleeper {
        Sleeper { sleeping: AtomicU32::new(0) }
    }

    /// Says that the caller will block unless it finds something on the look it now takes at its queues.
    pub fn announce(&self) {
        self.sleeping.swap(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Says that the caller does not block any more.
    pub fn awake(&self) {
        self.sleeping.swap(0, Ordering::AcqRel);
    }

    /// Returns whether the caller, who has published something, must ring the bell; true once a sleep.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // The load keeps the line shared while nobody sleeps; the swap lets one of several publishers ring.
        self.sleeping.load(Ordering::Relaxed) != 0 && self.sleeping.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_publisher_rings_once_a_sleep() {
        let sleeper = Sleeper::new();
        assert!(!sleeper.must_wake());
        sleeper.announce();
        assert!(sleeper.must_wake());
        assert!(!sleeper.must_wake());
        sleeper.announce();
        sleeper.awake();
        assert!(!sleeper.must_wake());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::explore::{Bell, explore, explore_within};
    use crate::sync::ring::{Consumer, Producer, Ring};

    type Shared = Arc<Ring<1, 2>>;

    /// Pushes one message and rings where needed.
    fn publish(producer: &mut Producer<Shared>, value: u64, sleeper: &Sleeper, bell: &Bell) {
        producer.try_push(&[value]).unwrap();
        if sleeper.must_wake() {
            bell.ring();
        }
    }

    /// Pops from all queues until `count` messages have come, sleeping without a time limit in between.
    fn receive(consumers: &mut [Consumer<Shared>], count: usize, sleeper: &Sleeper, bell: &Bell) -> Vec<u64> {
        let mut seen = Vec::new();
        loop {
            drain(consumers, &mut seen);
            if seen.len() == count {
                return seen;
            }
            sleeper.announce();
            let before = seen.len();
            drain(consumers, &mut seen);
            if seen.len() == before {
                bell.wait_and_clear();
            }
            sleeper.awake();
        }
    }

    fn drain(consumers: &mut [Consumer<Shared>], seen: &mut Vec<u64>) {
        for consumer in consumers {
            while let Some([value]) = consumer.try_pop().unwrap() {
                seen.push(value);
            }
        }
    }

    #[test]
    fn no_message_is_left_before_a_sleeper() {
        explore_within(Some(3), "sleep and wake", || {
            let ring: Shared = Arc::new(Ring::new());
            let shared = Arc::new((Sleeper::new(), Bell::default()));
            let mut producer = Producer::new(Arc::clone(&ring));
            let there = Arc::clone(&shared);
            let publishing = thread::spawn(move || {
                publish(&mut producer, 1, &there.0, &there.1);
                publish(&mut producer, 2, &there.0, &there.1);
            });
            let seen = receive(&mut [Consumer::new(ring)], 2, &shared.0, &shared.1);
            assert_eq!(seen, [1, 2]);
            publishing.join().unwrap();
        });
    }

    #[test]
    fn two_publishers_wake_one_sleeper() {
        explore_within(Some(3), "two publishers", || {
            let rings: [Shared; 2] = [Arc::new(Ring::new()), Arc::new(Ring::new())];
            let shared = Arc::new((Sleeper::new(), Bell::default()));
            let publishing = [0, 1].map(|i| {
                let mut producer = Producer::new(Arc::clone(&rings[i]));
                let there = Arc::clone(&shared);
                thread::spawn(move || publish(&mut producer, i as u64, &there.0, &there.1))
            });
            let mut consumers = rings.map(Consumer::new);
            let mut seen = receive(&mut consumers, 2, &shared.0, &shared.1);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1]);
            for thread in publishing {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn both_sides_sleep_for_each_other() {
        explore("request and answer", || {
            let (asked, answered): (Shared, Shared) = (Arc::new(Ring::new()), Arc::new(Ring::new()));
            let shared = Arc::new([(Sleeper::new(), Bell::default()), (Sleeper::new(), Bell::default())]);
            let there = Arc::clone(&shared);
            let (inbox, mut outbox) =
                (Consumer::new(Arc::clone(&asked)), Producer::new(Arc::clone(&answered)));
            let worker = thread::spawn(move || {
                let request = receive(&mut [inbox], 1, &there[1].0, &there[1].1)[0];
                publish(&mut outbox, request + 1, &there[0].0, &there[0].1);
            });
            publish(&mut Producer::new(asked), 4, &shared[1].0, &shared[1].1);
            let answer = receive(&mut [Consumer::new(answered)], 1, &shared[0].0, &shared[0].1);
            assert_eq!(answer, [5]);
            worker.join().unwrap();
        });
    }

    #[test]
    fn a_publisher_that_dies_before_it_rings_is_replaced_by_the_news_of_its_death() {
        explore("publisher dies before it rings", || {
            let ring: Shared = Arc::new(Ring::new());
            let shared = Arc::new((Sleeper::new(), Bell::default()));
            let mut producer = Producer::new(Arc::clone(&ring));
            let there = Arc::clone(&shared);
            let dying = thread::spawn(move || {
                producer.try_push(&[1]).unwrap();
                let _ = there.0.must_wake();
            });
            let there = Arc::clone(&shared);
            // The pidfd: readable after the death, whatever the dead had promised.
            let kernel = thread::spawn(move || {
                dying.join().unwrap();
                there.1.ring();
            });
            assert_eq!(receive(&mut [Consumer::new(ring)], 1, &shared.0, &shared.1), [1]);
            kernel.join().unwrap();
        });
    }
}
