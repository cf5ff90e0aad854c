//! IPC handles, which refer to the base of an allocation.

pub use fake_device::ipc::IpcHandle;
use fake_device::{api, ipc};

api! {
    fn [hipIpcGetMemHandle](out: Option<&mut IpcHandle>, address: u64) { ipc::export(out, address) }
    fn [hipIpcOpenMemHandle](out: Option<&mut u64>, handle: IpcHandle, flags: u32) {
        ipc::open(out, handle, flags)
    }
    fn [hipIpcCloseMemHandle](address: u64) { ipc::close(address) }
}
