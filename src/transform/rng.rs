//! Counter-based randomness.

/// Placeholder text replaced by the generator.
#[derive(Clone, Debug)]
pub struct SampleRng {}
