//! Compiles if symmem leaves cudarc's CUDA version to the program.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let communicator = symmem::init()?;
    // SAFETY: the call only checks whether the library can be opened.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        println!("{} devices", cudarc::driver::result::device::get_count()?);
    }
    println!(
        "rank {} of {}",
        communicator.rank(),
        communicator.world_size()
    );
    Ok(())
}
