//! Judges and draws histories.
//!
//! ```console
//! $ testkit check history.jsonl
//! $ testkit report history.jsonl -o out.html
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use lock_testkit_checker::history::History;
use lock_testkit_checker::report::page;
use lock_testkit_checker::{Verdict, check, picture};

#[derive(Parser)]
#[command(name = "testkit", about = "Judges and draws what locks did")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Says whether a history is legal; exits with 1 if it is illegal, with 2 if too little was seen
    Check(Input),
    /// Draws a history as one HTML page
    Report {
        #[command(flatten)]
        input: Input,
        /// The page's file
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

#[derive(Args)]
struct Input {
    /// The recorded histories: one file, or one for each process
    #[arg(required = true, value_name = "HISTORY")]
    histories: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testkit: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::from(3)
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let verdict = match command {
        Command::Check(input) => {
            let history = History::read(&input.histories)?;
            let judgement = check(&history, None);
            println!("{judgement}");
            for violation in &judgement.violations {
                println!("\n{} is shown by", violation.check);
                for event in &violation.witness {
                    println!("  line {}: {}", history.line(*event), serde_json::to_string(&history.events()[*event])?);
                }
            }
            judgement.verdict
        }
        Command::Report { input, output } => {
            let picture = picture(&History::read(&input.histories)?, None);
            std::fs::write(&output, page(&picture)?)?;
            println!("{}\n{}", picture.judgement, output.display());
            return Ok(ExitCode::SUCCESS);
        }
    };
    Ok(match verdict {
        Verdict::Ok => ExitCode::SUCCESS,
        Verdict::Illegal => ExitCode::from(1),
        Verdict::Unknown => ExitCode::from(2),
    })
}
