//! What the numbers mean, in one line.

use std::time::Duration;

use super::Stats;

/// A consumer that waits less of its time than this is not held up.
const HELD_UP: f64 = 0.05;

/// Workers that are busy less of their time than this are held up themselves.
const BUSY: f64 = 0.8;

impl Stats {
    /// Returns in one line who waits for whom, and what would help.
    ///
    /// # Examples
    /// ```
    /// let stats = forebay::Stats::default();
    /// assert_eq!(stats.verdict(), "nothing was loaded yet");
    /// ```
    pub fn verdict(&self) -> String {
        if self.samples == 0 || self.elapsed.is_zero() {
            return "nothing was loaded yet".into();
        }
        let work = self.read + self.decode + self.transform;
        let busy = share(work, work + self.idle);
        let wait = share(self.consumer_wait, self.elapsed);
        let stages = [("read", self.read), ("decode", self.decode), ("transform", self.transform)];
        let (stage, _) = stages.into_iter().max_by_key(|(_, time)| *time).unwrap_or(stages[0]);
        let facts =
            format!("workers busy {:.0} %, consumer waited {:.0} % of the time", 100.0 * busy, 100.0 * wait);
        if wait < HELD_UP {
            return format!("consumer-bound: {facts}; the loader keeps up");
        }
        if busy < BUSY {
            return format!("hand-over-bound: {facts}; a larger prefetch or batch_size would help");
        }
        let workers = self.num_workers.max(1);
        // What the consumer does beside waiting takes this share; workers must make its batches in that time.
        let wanted = (f64::from(workers) * busy / (1.0 - wait).max(0.01)).ceil() as u32;
        let help = match wanted.min(self.cpus).saturating_sub(workers) {
            0 => format!("all {} processors are in use", self.cpus),
            1 => "1 more worker would help".into(),
            more => format!("{more} more workers would help"),
        };
        format!("{stage}-bound: {facts}: {help}")
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    match whole.as_secs_f64() {
        0.0 => 0.0,
        whole => (part.as_secs_f64() / whole).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(busy: f64, wait: f64) -> Stats {
        let seconds = Duration::from_secs_f64;
        Stats {
            samples: 1,
            elapsed: seconds(10.0),
            consumer_wait: seconds(10.0 * wait),
            decode: seconds(20.0 * busy),
            idle: seconds(20.0 * (1.0 - busy)),
            num_workers: 2,
            cpus: 8,
            ..Stats::default()
        }
    }

    #[test]
    fn the_one_who_holds_up_the_other_is_named() {
        assert!(stats(0.3, 0.01).verdict().starts_with("consumer-bound: workers busy 30 %"));
        assert!(stats(0.3, 0.5).verdict().starts_with("hand-over-bound"));
        let text = stats(0.98, 0.5).verdict();
        assert_eq!(
            text,
            "decode-bound: workers busy 98 %, consumer waited 50 % of the time: 2 more workers would help"
        );
        let text = Stats { cpus: 2, ..stats(0.98, 0.99) }.verdict();
        assert!(text.ends_with("all 2 processors are in use"), "{text}");
    }
}
