//! The resources that a process has used, from `/proc`.

use crate::Outcome;

/// Seconds of processor time that a process has used.
///
/// # Errors
/// If there is no such process, or no `/proc`.
pub fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").ok_or("no name in stat")?.1;
    let fields: Vec<_> = after_name.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}

/// Bytes of memory that this process has in RAM.
///
/// # Errors
/// If there is no `/proc`.
pub fn resident_bytes() -> Outcome<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("no second field in statm")?.parse()?;
    Ok(pages * 4096)
}
