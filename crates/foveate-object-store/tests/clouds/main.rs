//! Sources and outputs against moto, against Azurite, an emulator of Azure Blob Storage, and against servers with
//! Google's protocol.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod outputs;
mod servers;
mod sources;

use std::process::{Command, ExitCode};

use foveate_testkit::{run, trials};

/// The sources of the credentials. Azure's are the emulator's.
const CREDENTIALS: [(&str, &str); 5] = [
    (
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}"#,
    ),
    ("AWS_ACCESS_KEY_ID", "testing"),
    ("AWS_SECRET_ACCESS_KEY", "testing-secret"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"),
    (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ),
];

fn main() -> ExitCode {
    // A process cannot change its own environment.
    if CREDENTIALS.iter().any(|(name, value)| std::env::var_os(name).is_none_or(|found| found != *value)) {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let status = program.envs(CREDENTIALS).args(std::env::args_os().skip(1)).status().unwrap();
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    run(trials![
        sources::azure_containers_are_sources,
        sources::googles_buckets_are_sources,
        sources::googles_requests_are_paid_for_by_a_project,
        outputs::s3_takes_outputs,
        outputs::azure_takes_outputs,
        outputs::google_is_asked_for_a_new_object,
    ])
}
