//! Tests a rendezvous at `host:port`, with and without the feature `tcp`.
//!
//! To test without it: `cargo test -p symmem-library-tests --no-default-features --test rendezvous`.

use std::net::TcpListener;
use std::time::Duration;

#[cfg(not(feature = "tcp"))]
use symmem::bootstrap::BootstrapError;
use symmem::bootstrap::{Bootstrap, LaunchEnvironment, Secret};

const LONG: Duration = Duration::from_secs(30);

/// Returns the launch environment of a world of one rank, at a port that was free a moment ago.
fn environment() -> LaunchEnvironment {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let secret = Secret::random().unwrap().to_hex();
    let lookup = |name: &str| match name {
        "SYMMEM_RANK" => Some("0".to_owned()),
        "SYMMEM_WORLD" => Some("1".to_owned()),
        "SYMMEM_RENDEZVOUS" => Some(address.clone()),
        "SYMMEM_SECRET" => Some(secret.clone()),
        _ => None,
    };
    LaunchEnvironment::from_variables(lookup).unwrap().unwrap()
}

#[test]
#[cfg(feature = "tcp")]
fn with_the_feature_an_address_is_met_at() {
    Bootstrap::connect(environment(), LONG).unwrap();
}

#[test]
#[cfg(not(feature = "tcp"))]
fn without_the_feature_an_address_is_an_error_that_says_what_to_do() {
    let mut environment = environment();
    let address = environment.address.clone().unwrap();
    let error = Bootstrap::connect(environment.clone(), LONG).unwrap_err();
    assert!(
        matches!(&error, BootstrapError::TcpNotBuilt { address: named } if *named == address),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        format!(
            "the rendezvous at {address} needs TCP, and this program was built without the feature `tcp` of symmem; \
             build it with that feature, or unset SYMMEM_RENDEZVOUS to meet over a Unix socket"
        )
    );
    // The advice in the error works.
    environment.address = None;
    Bootstrap::connect(environment, LONG).unwrap();
}

#[test]
#[cfg(not(feature = "tcp"))]
fn without_the_feature_a_missing_secret_is_not_what_is_wrong() {
    let mut environment = environment();
    environment.secret = None;
    let error = Bootstrap::connect(environment, LONG).unwrap_err();
    assert!(
        matches!(error, BootstrapError::TcpNotBuilt { .. }),
        "{error:?}"
    );
}
