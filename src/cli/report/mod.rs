//! The closing report of `run`: the numbers (`data`), and two ways to print them (`text`, `json`).
//! Measures nothing itself.

mod data;
mod json;
mod text;

pub(crate) use data::{BatchDigest, EpochReport, RunReport, Totals, WaitSeconds, WorkerSeconds, build};
pub(crate) use json::json;
pub(crate) use text::text;
