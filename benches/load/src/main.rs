//! Loads a broker that speaks Kafka's protocol, and prints what was measured as one line of JSON.
//!
//! `kraftlog-load MODE name=value ...`; the modes are `produce`, `connect`, `fetch`, `session` and `idle`, and
//! `benches/path_bench.py` runs them. One thread serves all connections, so that the generator costs little of a small
//! machine; the broker's processor time is read from its process clock.
mod batch;
mod connect;
mod connection;
mod fetch;
mod fetch_wire;
mod floor;
mod histogram;
mod idle;
mod options;
mod produce;
mod report;
mod sampler;
mod session;
mod wire;

use std::process::ExitCode;

/// What ends a run early: the text says why.
pub type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let ran = options::Options::parse(arguments).and_then(|mut options| {
        // A timer of one request per millisecond must not be 50 us late, the kernel's default.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let report = match mode.as_str() {
            "produce" => produce::run(&mut options)?,
            "connect" => connect::run(&mut options)?,
            "fetch" => fetch::run(&mut options)?,
            "session" => session::run(&mut options)?,
            "idle" => idle::run(&mut options)?,
            "floor" => {
                floor::run(&mut options)?;
                return Err("the floor ended".into());
            }
            _ => {
                return Err(format!(
                    "{mode:?} is no mode; use produce, connect, fetch, session, idle or floor"
                )
                .into())
            }
        };
        Ok(report)
    });
    match ran {
        Ok(report) => {
            println!("{}", report.json());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("kraftlog-load: {failure}");
            ExitCode::FAILURE
        }
    }
}
