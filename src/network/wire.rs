//! What a leg needs of the network.

/// The connections of one leg: an operation among a few ranks of different nodes, its *members*.
///
/// Each member has a *region*: memory of the same size that its peers may write to. A leg sends small data as messages,
/// which are copied, and larger data as puts from its own memory into a peer's region. Messages and puts carry a tag,
/// which is unique for each pair of members in a leg. They may arrive in any order, and before the receiver has begun
/// the leg; so a leg puts only where the receiver has told it to.
///
/// Nothing here blocks.
pub trait Wire {
    /// The failure of a connection.
    type Fault;

    /// Returns the number of members.
    fn members(&self) -> usize;

    /// Returns this rank's number among the members.
    fn own(&self) -> usize;

    /// Returns the first byte and the length of this rank's region. Peers write to it, so it is never behind a
    /// reference.
    fn region(&self) -> (*mut u8, u64);

    /// Returns the first byte and the length of what this rank's parts are sent from, if that is not its region.
    fn source(&self) -> (*const u8, u64) {
        let (region, bytes) = self.region();
        (region.cast_const(), bytes)
    }

    /// Sends a message of at most [`MOST_MESSAGE`] bytes, which are copied at once.
    ///
    /// # Errors
    /// The failure of the connection.
    fn send(&mut self, to: usize, tag: u32, data: &[u8]) -> Result<(), Self::Fault>;

    /// Starts to copy bytes into a peer's region, from its byte `at` on. When they have arrived, the peer can take an
    /// empty message with the tag.
    ///
    /// # Errors
    /// The failure of the connection.
    ///
    /// # Safety
    /// The source is readable, and nothing writes to it, until [`Wire::settled`] returns true. The bytes are inside of the
    /// peer's region, and the peer uses them for nothing else.
    unsafe fn put(
        &mut self,
        to: usize,
        tag: u32,
        source: *const u8,
        bytes: u64,
        at: u64,
    ) -> Result<(), Self::Fault>;

    /// Takes the message of a peer with a tag if it has arrived; empty for a put. Each can be taken once.
    fn take(&mut self, from: usize, tag: u32) -> Option<&[u8]>;

    /// Returns whether all puts of this rank are complete here, so that their sources may be overwritten.
    fn settled(&mut self) -> bool;
}

/// Most bytes of a message. A put takes four in a row: ready, data, its flush, the tag. Messages are copied four times more; over
/// TCP, parts up to 256 KiB took less time as messages (`benches/NOTES.md`). Not measured over InfiniBand, where copies weigh
/// more.
pub const MOST_MESSAGE: usize = 128 << 10;
