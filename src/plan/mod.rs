//! What fits: arithmetic on geometry and limits, and what to tell the user. Reserves nothing itself.

mod budget;

pub(crate) use budget::Budget;
