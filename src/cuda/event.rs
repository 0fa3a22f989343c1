//! Events: marks in a stream that other streams and the host can wait for.

use std::ptr;

use cudarc::driver::sys;

use super::device::Device;
use super::driver::check;
use super::launch::raw;
use crate::error::Error;
use crate::options::Stream;

/// One event of one device.
pub struct Event {
    device: &'static Device,
    event: sys::CUevent,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for Event {}

impl Event {
    /// Not recorded yet; the device's context is current.
    pub fn new(device: &'static Device) -> Result<Self, Error> {
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: writes one event.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Self { device, event })
    }

    /// Behind everything enqueued on the stream so far, and no longer where it was.
    pub fn record(&self, stream: Stream) -> Result<(), Error> {
        // SAFETY: a live event and the caller's live stream.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.event, raw(stream)) })
    }

    /// What is enqueued on the stream from now on runs after it.
    pub fn precede(&self, stream: Stream) -> Result<(), Error> {
        // SAFETY: as above.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(raw(stream), self.event, 0) })
    }

    /// Waits on the host.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: as above; the event was not recorded in a capture.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    /// Whether everything before it has run; false after an error.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // SAFETY: as above; the event was not recorded in a capture.
        check("cuEventQuery", unsafe { sys::cuEventQuery(self.event) }).is_ok()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A lost device has nothing left to free.
        let _ = self.device.run(|| {
            // SAFETY: created above and used by nobody after this.
            check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.event) })
        });
    }
}
