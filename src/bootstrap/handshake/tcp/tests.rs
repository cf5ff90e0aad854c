//! Tests that only who knows the secret gets through the handshake, and only once.

use super::*;
use crate::bootstrap::key::Key;

/// The bytes with which a rank under `secret` begins, and what it needs to go on.
fn hello(secret: &Secret) -> (Vec<u8>, snow::HandshakeState) {
    let mut noise = builder(secret).unwrap().build_initiator().unwrap();
    let mut message = [0; MESSAGE_BYTES];
    noise.write_message(&[], &mut message).unwrap();
    ([&MAGIC[..], &message].concat(), noise)
}

/// The bytes with which a rank answers the store's `welcome`.
fn confirmation(mut noise: snow::HandshakeState, welcome: &[u8]) -> [u8; CONFIRMATION_BYTES] {
    noise
        .read_message(&welcome[WELCOME.len()..], &mut [])
        .unwrap();
    let mut rank = noise.into_transport_mode().unwrap();
    let mut confirmation = [0; CONFIRMATION_BYTES];
    rank.write_message(&[], &mut confirmation).unwrap();
    confirmation
}

fn verifier(secret: &Secret) -> Verifier {
    Verifier::new(Key::Secret(secret.clone()))
}

/// Hands `bytes` to the store; they must be one part.
fn hear(exchange: &mut Exchange, bytes: &[u8], verifier: &mut Verifier) -> Step {
    exchange.space().copy_from_slice(bytes);
    exchange.advance(bytes.len(), verifier)
}

#[test]
fn a_rank_is_trusted_once_it_has_answered_the_store() {
    let secret = Secret::random().unwrap();
    let (hello, noise) = hello(&secret);
    let (mut exchange, mut verifier) = (Exchange::new(), verifier(&secret));
    assert!(!exchange.is_answered());
    let Step { answer, verdict } = hear(&mut exchange, &hello, &mut verifier);
    assert_eq!(verdict, Verdict::Pending);
    assert!(exchange.is_answered());
    let confirmation = confirmation(noise, &answer);
    let step = hear(&mut exchange, &confirmation, &mut verifier);
    assert_eq!(step, Step::silent(Verdict::Trusted));
}

#[test]
fn a_handshake_recorded_at_another_store_gets_one_answer_and_is_not_trusted() {
    let secret = Secret::random().unwrap();
    let (hello, noise) = hello(&secret);
    let answer = hear(&mut Exchange::new(), &hello, &mut verifier(&secret)).answer;
    let confirmation = confirmation(noise, &answer);
    let (mut again, mut verifier) = (Exchange::new(), verifier(&secret));
    let second = hear(&mut again, &hello, &mut verifier).answer;
    assert_ne!(second, answer, "the store's keys are fresh");
    let step = hear(&mut again, &confirmation, &mut verifier);
    assert_eq!(step, Step::silent(Verdict::Refused(RECORDING)));
    let mut third = Exchange::new();
    let step = hear(&mut third, &hello, &mut verifier);
    assert_eq!(step, Step::silent(Verdict::Refused(RECORDING)));
    assert!(!third.is_answered(), "no keys are computed for it");
}

#[test]
fn a_hello_with_one_bit_flipped_or_under_another_secret_is_refused() {
    let secret = Secret::random().unwrap();
    let (right, _) = hello(&secret);
    for bit in 0..8 * HELLO_BYTES {
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let heard = hear(&mut Exchange::new(), &wrong, &mut verifier(&secret));
        let Step { answer, verdict } = heard;
        assert!(matches!(verdict, Verdict::Refused(_)), "bit {bit}");
        let is_greeting = bit / 8 >= MAGIC.len();
        let expected: &[u8] = if is_greeting { b"refused\n" } else { b"" };
        assert_eq!(answer, expected, "bit {bit}");
    }
    let (other, _) = hello(&Secret::random().unwrap());
    let step = hear(&mut Exchange::new(), &other, &mut verifier(&secret));
    assert_eq!(step, Step::refused("it does not know the job's secret"));
}

#[test]
fn a_rank_of_an_earlier_version_is_told_apart_from_a_stranger() {
    // It waits for an answer to these bytes: no more follow.
    let hello = [&EARLIER_MAGIC[..], &[1; 32]].concat();
    let mut exchange = Exchange::new();
    exchange.space()[..hello.len()].copy_from_slice(&hello);
    let step = exchange.advance(hello.len(), &mut verifier(&Secret::random().unwrap()));
    assert!(matches!(step.verdict, Verdict::Refused(reason) if reason.contains("earlier version")));
}

#[test]
fn no_two_handshakes_begin_alike() {
    let secret = Secret::random().unwrap();
    assert_ne!(
        hello(&secret).0,
        hello(&secret).0,
        "or else they are not random"
    );
}
