//! Tests that only who knows the secret gets through the handshake, and only once.

use super::*;

/// The bytes with which a rank under `secret` begins, and what it needs to go on.
fn hello(secret: &Secret) -> (Vec<u8>, snow::HandshakeState) {
    let mut noise = builder(secret).unwrap().build_initiator().unwrap();
    let mut message = [0; MESSAGE_BYTES];
    noise.write_message(&[], &mut message).unwrap();
    ([&MAGIC[..], &message].concat(), noise)
}

/// Hands `bytes` to the store; they must be one part.
fn hear(exchange: &mut Exchange, bytes: &[u8], secret: &Secret) -> Step {
    exchange.space().copy_from_slice(bytes);
    exchange.advance(bytes.len(), Some(secret))
}

#[test]
fn a_rank_is_trusted_once_it_has_answered_the_store() {
    let secret = Secret::random().unwrap();
    let (hello, mut noise) = hello(&secret);
    let mut exchange = Exchange::new();
    assert!(!exchange.is_promising());
    let Step { answer, verdict } = hear(&mut exchange, &hello, &secret);
    assert_eq!(verdict, Verdict::Pending);
    assert!(exchange.is_promising());
    noise
        .read_message(&answer[WELCOME.len()..], &mut [])
        .unwrap();
    let mut rank = noise.into_transport_mode().unwrap();
    let mut confirmation = [0; CONFIRMATION_BYTES];
    rank.write_message(&[], &mut confirmation).unwrap();
    let step = hear(&mut exchange, &confirmation, &secret);
    assert_eq!(step, Step::silent(Verdict::Trusted));
}

#[test]
fn a_recorded_handshake_gets_an_answer_and_is_not_trusted() {
    let secret = Secret::random().unwrap();
    let (hello, mut noise) = hello(&secret);
    let answer = hear(&mut Exchange::new(), &hello, &secret).answer;
    noise
        .read_message(&answer[WELCOME.len()..], &mut [])
        .unwrap();
    let mut rank = noise.into_transport_mode().unwrap();
    let mut confirmation = [0; CONFIRMATION_BYTES];
    rank.write_message(&[], &mut confirmation).unwrap();
    let mut again = Exchange::new();
    let second = hear(&mut again, &hello, &secret).answer;
    assert_ne!(second, answer, "the store's keys are fresh");
    let step = hear(&mut again, &confirmation, &secret);
    assert!(matches!(step.verdict, Verdict::Refused(reason) if reason.contains("recording")));
}

#[test]
fn a_hello_with_one_bit_flipped_or_under_another_secret_is_refused() {
    let secret = Secret::random().unwrap();
    let (right, _) = hello(&secret);
    for bit in 0..8 * HELLO_BYTES {
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let Step { answer, verdict } = hear(&mut Exchange::new(), &wrong, &secret);
        assert!(matches!(verdict, Verdict::Refused(_)), "bit {bit}");
        let is_greeting = bit / 8 >= MAGIC.len();
        let expected: &[u8] = if is_greeting { b"refused\n" } else { b"" };
        assert_eq!(answer, expected, "bit {bit}");
    }
    let (other, _) = hello(&Secret::random().unwrap());
    let step = hear(&mut Exchange::new(), &other, &secret);
    assert_eq!(step, Step::refused("it does not know the job's secret"));
}

#[test]
fn a_rank_of_an_earlier_version_is_told_apart_from_a_stranger() {
    let hello = [&EARLIER_MAGIC[..], &[1; MESSAGE_BYTES]].concat();
    let step = hear(&mut Exchange::new(), &hello, &Secret::random().unwrap());
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
