use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// The parts of the time of one [`Encoder::encode`](crate::Encoder::encode): wall-clock time, measured by the device's
/// clock if a device does the work. If an encoder reads the host's memory, converting the samples' layout or type
/// counts as copying too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeTimes {
    /// Copying the batch to where the forward reads it.
    pub copy_in: Duration,
    /// Computing the network.
    pub forward: Duration,
    /// Copying the vectors to the host, as rows.
    pub copy_out: Duration,
}

impl EncodeTimes {
    /// Returns the times of a forward that started at `started` and copies nothing.
    pub fn forward_since(started: Instant) -> Self {
        Self { forward: started.elapsed(), ..Self::default() }
    }

    /// The total.
    pub fn total(&self) -> Duration {
        self.copy_in + self.forward + self.copy_out
    }

    /// Scales the sums of several threads, in proportion, to the wall-clock time `wall` of their parallel work.
    pub fn side_by_side(self, wall: Duration) -> Self {
        let sum = self.total().as_secs_f64();
        if sum == 0.0 {
            return Self { forward: wall, ..Self::default() };
        }
        let [copy_in, copy_out] = [self.copy_in, self.copy_out].map(|part| wall.mul_f64(part.as_secs_f64() / sum));
        Self { copy_in, copy_out, forward: wall.saturating_sub(copy_in + copy_out) }
    }
}

impl AddAssign for EncodeTimes {
    fn add_assign(&mut self, other: Self) {
        self.copy_in += other.copy_in;
        self.forward += other.forward;
        self.copy_out += other.copy_out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_side_by_side_share_the_wall_clock() {
        let ms = Duration::from_millis;
        let sums = EncodeTimes { copy_in: ms(20), forward: ms(170), copy_out: ms(10) };
        let parts = sums.side_by_side(ms(100));
        assert_eq!(parts, EncodeTimes { copy_in: ms(10), forward: ms(85), copy_out: ms(5) });
        assert_eq!(parts.total(), ms(100));
        assert_eq!(EncodeTimes::default().side_by_side(ms(7)).forward, ms(7));
    }
}
