//! The C functions, structures and numbers of `ucp.h` that symmem uses, as in UCX 1.13 to 1.22.
//!
//! UCP's structures start with a mask of the fields that the caller has filled in; newer versions only append fields.
//! A structure of 1.13 is therefore valid for every later version.

use crate::load_error::LoadError;
use libloading::os::unix;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;

/// `ucs_status_t`, a packed enumeration: one byte.
pub type Status = i8;
/// `ucs_status_ptr_t`: null, a request, or a negative status as a pointer.
pub type StatusPointer = *mut c_void;

/// `UCS_OK`.
pub const OK: Status = 0;
/// `UCS_INPROGRESS`.
pub const IN_PROGRESS: Status = 1;
/// `UCS_ERR_INVALID_PARAM`.
pub const INVALID_PARAM: Status = -5;
/// `UCS_ERR_INVALID_ADDR`.
pub const INVALID_ADDRESS: Status = -7;
/// `UCS_ERR_BUSY`.
pub const BUSY: Status = -15;
/// `UCS_ERR_CANCELED`.
pub const CANCELED: Status = -16;
/// `UCS_ERR_UNSUPPORTED`.
pub const UNSUPPORTED: Status = -22;
/// `UCS_ERR_LAST`: pointers from this value on are errors.
const LAST_ERROR: isize = -100;

/// What a non-blocking call returned.
pub enum Started {
    /// Complete; the callback is not called.
    AtOnce,
    /// The callback is called later.
    Request,
    /// Failed; the callback is not called.
    Failed(Status),
}

impl Started {
    /// Reads a `ucs_status_ptr_t`, as `UCS_PTR_IS_ERR` and `UCS_PTR_IS_PTR` do.
    pub fn of(pointer: StatusPointer) -> Self {
        match pointer as isize {
            0 => Self::AtOnce,
            status @ LAST_ERROR..0 => Self::Failed(status as Status),
            _ => Self::Request,
        }
    }
}

/// `UCP_FEATURE_RMA`, `_WAKEUP` and `_AM`.
pub const FEATURES: u64 = 1 << 1 | 1 << 4 | 1 << 6;

/// `ucp_params_t`.
#[repr(C)]
pub struct ContextParameters {
    /// Bit 0: `features`; 5: `mt_workers_shared`; 6: `estimated_num_eps`; 8: `name`.
    pub field_mask: u64,
    pub features: u64,
    pub request_size: usize,
    pub request_init: *const c_void,
    pub request_cleanup: *const c_void,
    pub tag_sender_mask: u64,
    pub mt_workers_shared: c_int,
    pub estimated_num_eps: usize,
    pub estimated_num_ppn: usize,
    pub name: *const c_char,
}

/// `ucp_worker_params_t`.
#[repr(C)]
pub struct WorkerParameters {
    /// Bit 0: `thread_mode`; 5: `flags`.
    pub field_mask: u64,
    pub thread_mode: c_uint,
    pub cpu_mask: [u64; 16],
    pub events: c_uint,
    pub user_data: *mut c_void,
    pub event_fd: c_int,
    pub flags: u64,
    pub name: *const c_char,
    pub am_alignment: usize,
    pub client_id: u64,
}

/// `UCS_THREAD_MODE_SERIALIZED`.
pub const SERIALIZED: c_uint = 1;
/// `UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK`.
pub const IGNORE_REQUEST_LEAK: u64 = 1;

/// `ucp_worker_attr_t`.
#[repr(C)]
pub struct WorkerAttributes {
    /// Bit 3: `max_am_header`.
    pub field_mask: u64,
    pub thread_mode: c_uint,
    pub address_flags: u32,
    pub address: *mut c_void,
    pub address_length: usize,
    pub max_am_header: usize,
    pub name: [u8; 32],
    pub max_debug_string: usize,
}

/// `ucs_sock_addr_t`.
#[repr(C)]
pub struct SocketAddress {
    pub address: *const c_void,
    pub length: u32,
}

/// `ucp_err_handler_cb_t`.
pub type ErrorCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, Status);

/// `ucp_ep_params_t`.
#[repr(C)]
pub struct EndpointParameters {
    /// Bit 0: `address`; 1: `err_mode`; 2: `err_handler`.
    pub field_mask: u64,
    pub address: *const c_void,
    pub err_mode: c_uint,
    pub err_handler: ErrorCallback,
    pub err_argument: *mut c_void,
    pub user_data: *mut c_void,
    pub flags: c_uint,
    pub sockaddr: SocketAddress,
    pub conn_request: *mut c_void,
    pub name: *const c_char,
    pub local_sockaddr: SocketAddress,
}

/// `UCP_ERR_HANDLING_MODE_PEER`.
pub const ERROR_MODE_PEER: c_uint = 1;

/// `ucp_mem_map_params_t`.
#[repr(C)]
pub struct MapParameters {
    /// Bit 0: `address`; 1: `length`.
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    pub flags: c_uint,
    pub prot: c_uint,
    pub memory_type: c_uint,
}

/// `ucp_mem_attr_t`.
#[repr(C)]
pub struct MemoryAttributes {
    /// Bit 2: `memory_type`.
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    /// `ucs_memory_type_t`; 0 is the host's.
    pub memory_type: c_uint,
}

/// `ucp_send_nbx_callback_t`.
pub type SendCallback = unsafe extern "C" fn(*mut c_void, Status, *mut c_void);
/// `ucp_am_recv_data_nbx_callback_t`.
pub type ReceiveCallback = unsafe extern "C" fn(*mut c_void, Status, usize, *mut c_void);

/// The union `cb` of [`RequestParameters`].
#[repr(C)]
pub union Callback {
    pub send: SendCallback,
    pub receive: ReceiveCallback,
}

/// `ucp_request_param_t`.
#[repr(C)]
pub struct RequestParameters {
    /// Bits of `ucp_op_attr_t`.
    pub attributes: u32,
    pub flags: u32,
    pub request: *mut c_void,
    pub callback: Callback,
    pub datatype: u64,
    pub user_data: *mut c_void,
    pub reply_buffer: *mut c_void,
    pub memory_type: c_uint,
    pub receive_information: *mut c_void,
    pub memory: *mut c_void,
}

/// `UCP_OP_ATTR_FIELD_CALLBACK`.
pub const WITH_CALLBACK: u32 = 1 << 1;
/// `UCP_OP_ATTR_FIELD_USER_DATA`.
pub const WITH_USER_DATA: u32 = 1 << 2;
/// Attributes of every operation that is called back.
pub const COMPLETION: u32 = WITH_CALLBACK | WITH_USER_DATA;
/// `UCP_OP_ATTR_FIELD_FLAGS`.
pub const WITH_FLAGS: u32 = 1 << 4;
/// `UCP_OP_ATTR_FIELD_MEMH`.
pub const WITH_MEMORY: u32 = 1 << 8;

/// `UCP_AM_SEND_FLAG_REPLY`.
pub const SEND_REPLY: u32 = 1;
/// `UCP_AM_SEND_FLAG_EAGER`.
pub const SEND_EAGER: u32 = 1 << 1;
/// `UCP_AM_SEND_FLAG_RNDV`.
pub const SEND_RENDEZVOUS: u32 = 1 << 2;
/// `UCP_EP_CLOSE_FLAG_FORCE`.
pub const CLOSE_FORCE: u32 = 1;

/// `ucp_am_recv_callback_t`.
pub type MessageCallback = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    *const ReceiveParameters,
) -> Status;

/// `ucp_am_handler_param_t`.
#[repr(C)]
pub struct HandlerParameters {
    /// Bit 0: `id`; 2: `callback`; 3: `argument`.
    pub field_mask: u64,
    pub id: c_uint,
    pub flags: u32,
    pub callback: Option<MessageCallback>,
    pub argument: *mut c_void,
}

/// `ucp_am_recv_param_t`.
#[repr(C)]
pub struct ReceiveParameters {
    pub attributes: u64,
    pub reply_endpoint: *mut c_void,
}

/// `UCP_AM_RECV_ATTR_FIELD_REPLY_EP`.
pub const RECEIVE_REPLY_ENDPOINT: u64 = 1;
/// `UCP_AM_RECV_ATTR_FLAG_RNDV`.
pub const RECEIVE_RENDEZVOUS: u64 = 1 << 17;

/// `ucp_transport_entry_t`, from UCX 1.14 on.
#[repr(C)]
pub struct TransportEntry {
    pub transport: *const c_char,
    pub device: *const c_char,
}

/// `ucp_ep_attr_t`, of which only the transports are asked for.
#[repr(C)]
pub struct EndpointAttributes {
    /// Bit 3: the transports.
    pub field_mask: u64,
    pub name: [u8; 32],
    pub local_sockaddr: [u64; 16],
    pub remote_sockaddr: [u64; 16],
    pub entries: *mut TransportEntry,
    pub num_entries: c_uint,
    pub entry_size: usize,
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(ContextParameters, mt_workers_shared) == 48);
    assert!(offset_of!(ContextParameters, estimated_num_eps) == 56);
    assert!(offset_of!(ContextParameters, name) == 72 && size_of::<ContextParameters>() == 80);
    assert!(offset_of!(WorkerParameters, cpu_mask) == 16);
    assert!(offset_of!(WorkerParameters, events) == 144);
    assert!(offset_of!(WorkerParameters, flags) == 168);
    assert!(size_of::<WorkerParameters>() == 200);
    assert!(offset_of!(WorkerAttributes, max_am_header) == 32);
    assert!(offset_of!(EndpointParameters, err_mode) == 16);
    assert!(offset_of!(EndpointParameters, err_handler) == 24);
    assert!(size_of::<EndpointParameters>() == 104);
    assert!(size_of::<MapParameters>() == 40);
    assert!(offset_of!(RequestParameters, callback) == 16);
    assert!(offset_of!(RequestParameters, reply_buffer) == 40);
    assert!(offset_of!(RequestParameters, memory) == 64 && size_of::<RequestParameters>() == 72);
    assert!(offset_of!(HandlerParameters, callback) == 16 && size_of::<HandlerParameters>() == 32);
    assert!(offset_of!(EndpointAttributes, entries) == 296);
};

macro_rules! table {
    (
        required { $( $required:ident($($type:ty),* $(,)?) $(-> $result:ty)?; )* }
        optional { $( $optional:ident($($other:ty),* $(,)?) $(-> $other_result:ty)?; )* }
    ) => {
        /// Functions of `libucp`.
        #[allow(missing_docs, reason = "named as in ucp.h")]
        pub struct Table {
            $( pub $required: unsafe extern "C" fn($($type),*) $(-> $result)?, )*
            $( pub $optional: Option<unsafe extern "C" fn($($other),*) $(-> $other_result)?>, )*
        }

        impl Table {
            /// Looks up every function.
            ///
            /// # Errors
            /// [`LoadError::MissingSymbol`] with the first required function that the library lacks.
            ///
            /// # Safety
            /// Functions of these names in the library have the signatures of `ucp.h`.
            pub unsafe fn load(library: &unix::Library, path: &Path) -> Result<Self, LoadError> {
                let find = |name: &'static str| {
                    // SAFETY: the address is only read here.
                    unsafe { library.get::<*mut c_void>(name.as_bytes()) }
                        .ok()
                        .map(|symbol| symbol.as_raw_ptr())
                        .filter(|address| !address.is_null())
                };
                Ok(Self {
                    $( $required: {
                        let address = find(concat!(stringify!($required), "\0")).ok_or(
                            LoadError::MissingSymbol {
                                path: path.into(),
                                symbol: stringify!($required),
                            },
                        )?;
                        // SAFETY: the caller says that the function of this name has this signature.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) $(-> $result)?,
                            >(address)
                        }
                    }, )*
                    $( $optional: find(concat!(stringify!($optional), "\0")).map(
                        // SAFETY: as for the required functions.
                        |address| unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($other),*) $(-> $other_result)?,
                            >(address)
                        },
                    ), )*
                })
            }

            /// Returns the optional functions that the library lacks.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $( if self.$optional.is_none() { missing.push(stringify!($optional)); } )*
                missing
            }
        }
    };
}

/// `ucp_context_h`, `ucp_worker_h`, `ucp_ep_h`, `ucp_mem_h`, `ucp_rkey_h`, `ucp_config_t *`.
pub type Handle = *mut c_void;

table! {
    required {
        ucp_get_version_string() -> *const c_char;
        ucs_status_string(Status) -> *const c_char;
        ucp_config_read(*const c_char, *const c_char, *mut Handle) -> Status;
        ucp_config_modify(Handle, *const c_char, *const c_char) -> Status;
        ucp_config_release(Handle);
        ucp_init_version(c_uint, c_uint, *const ContextParameters, Handle, *mut Handle) -> Status;
        ucp_cleanup(Handle);
        ucp_mem_map(Handle, *const MapParameters, *mut Handle) -> Status;
        ucp_mem_unmap(Handle, Handle) -> Status;
        ucp_mem_query(Handle, *mut MemoryAttributes) -> Status;
        ucp_rkey_pack(Handle, Handle, *mut *mut c_void, *mut usize) -> Status;
        ucp_rkey_buffer_release(*mut c_void);
        ucp_worker_create(Handle, *const WorkerParameters, *mut Handle) -> Status;
        ucp_worker_destroy(Handle);
        ucp_worker_query(Handle, *mut WorkerAttributes) -> Status;
        ucp_worker_get_address(Handle, *mut *mut c_void, *mut usize) -> Status;
        ucp_worker_release_address(Handle, *mut c_void);
        ucp_worker_get_efd(Handle, *mut c_int) -> Status;
        ucp_worker_arm(Handle) -> Status;
        ucp_worker_progress(Handle) -> c_uint;
        ucp_worker_set_am_recv_handler(Handle, *const HandlerParameters) -> Status;
        ucp_ep_create(Handle, *const EndpointParameters, *mut Handle) -> Status;
        ucp_ep_close_nbx(Handle, *const RequestParameters) -> StatusPointer;
        ucp_ep_flush_nbx(Handle, *const RequestParameters) -> StatusPointer;
        ucp_ep_rkey_unpack(Handle, *const c_void, *mut Handle) -> Status;
        ucp_rkey_destroy(Handle);
        ucp_put_nbx(Handle, *const c_void, usize, u64, Handle, *const RequestParameters) -> StatusPointer;
        ucp_get_nbx(Handle, *mut c_void, usize, u64, Handle, *const RequestParameters) -> StatusPointer;
        ucp_am_send_nbx(Handle, c_uint, *const c_void, usize, *const c_void, usize, *const RequestParameters) -> StatusPointer;
        ucp_am_recv_data_nbx(Handle, *mut c_void, *mut c_void, usize, *const RequestParameters) -> StatusPointer;
        ucp_request_free(*mut c_void);
    }
    optional {
        ucp_context_print_info(Handle, *mut c_void);
        ucp_ep_query(Handle, *mut EndpointAttributes) -> Status;
    }
}
