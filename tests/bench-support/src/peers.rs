//! The locks of other libraries beside ours.

use std::process::Command;

use crate::{Outcome, Plan};

/// The script that fetches other libraries and measures them, in a workspace and with toolchains of their own.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers");

/// Measures the locks of other libraries beside ours, on the same server in the same run, and prints a table for each deployment.
///
/// # Errors
/// If a server is missing, or a table could not be measured. A library whose toolchain is missing is shown as that.
pub fn peers(plan: &Plan, deployments: &[&str]) -> Outcome {
    for deployment in deployments {
        let status = Command::new("bash")
            .arg(SCRIPT)
            .arg(deployment)
            .args(plan.quick.then_some("--quick"))
            // It builds in another workspace, with the flags of that one.
            .env_remove("CARGO_TARGET_DIR")
            .status()?;
        if !status.success() {
            return Err(format!("scripts/peers {deployment}: {status}").into());
        }
    }
    Ok(())
}
