//! Legacy IPC handles.

pub use fake_device::ipc::IpcHandle;
use fake_device::{api, ipc};

api! {
    fn [cuIpcGetMemHandle](out: Option<&mut IpcHandle>, address: u64) { ipc::export(out, address) }
    fn [cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2](out: Option<&mut u64>, handle: IpcHandle, flags: u32) {
        ipc::open(out, handle, flags)
    }
    fn [cuIpcCloseMemHandle](address: u64) { ipc::close(address) }
}
