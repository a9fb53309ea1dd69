//! One sample on its way through the pipeline.

/// A picture and its label.
#[derive(Debug)]
pub struct Sample {}
