//! Standard output, where results go, line by line.

use std::fmt;
use std::io::{self, BufWriter, Write};

use super::outcome::Failure;

/// A buffered writer that tells a closed pipe from a real failure.
pub(crate) struct Output {
    writer: BufWriter<Box<dyn Write>>,
}

impl Output {
    /// Creates one that writes to standard output.
    pub(crate) fn stdout() -> Self {
        Output::new(Box::new(io::stdout()))
    }

    fn new(writer: Box<dyn Write>) -> Self {
        Output { writer: BufWriter::new(writer) }
    }

    /// Writes one line and passes it on at once, so that a reader sees each result as it comes.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.writer, "{text}").map_err(failure)?;
        self.flush()
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(failure)
    }

    /// Passes on what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(failure)
    }
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Output(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Refuses(io::ErrorKind);

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_told_from_a_full_disk() {
        let mut closed = Output::new(Box::new(Refuses(io::ErrorKind::BrokenPipe)));
        assert!(matches!(closed.line("x"), Err(Failure::OutputClosed)));
        let mut full = Output::new(Box::new(Refuses(io::ErrorKind::StorageFull)));
        assert!(matches!(full.line("x"), Err(Failure::Output(_))));
    }
}
