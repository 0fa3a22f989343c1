//! A test's own device memory and streams, straight on the driver API.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};
use solve::cuda::arch::Arch;
use solve::cuda::block::Kernels;
use solve::cuda::device::Device;
use solve::cuda::driver::Driver;
use solve::cuda::hopper::plan::Chip;

pub fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// Why there is nothing to test on, or the driver.
pub fn driver() -> Result<&'static Driver, String> {
    Driver::get().map_err(|error| error.to_string())
}

/// Makes the device's primary context current in this thread, as a program that uses the runtime API has it.
pub fn enter(ordinal: i32) -> sys::CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: writes one pointer; the context stays retained.
    unsafe {
        ok(sys::cuDevicePrimaryCtxRetain(&mut context, ordinal));
        ok(sys::cuCtxSetCurrent(context));
    }
    context
}

/// The first GPU on one path, opened once.
pub fn device(arch: Arch) -> &'static Device {
    static DEVICES: [OnceLock<&'static Device>; 3] = [const { OnceLock::new() }; 3];
    DEVICES[arch as usize].get_or_init(|| {
        let device = Device::open(0, Some(arch)).unwrap_or_else(|error| panic!("{}: {error}", arch.name()));
        Box::leak(Box::new(device))
    })
}

/// The first GPU on one path, planned for as if it had so many multiprocessors.
pub fn smaller_device(arch: Arch, sms: usize) -> &'static Device {
    let mut device = Device::open(0, Some(arch)).expect("the device");
    device.sms = sms;
    if let Kernels::Hopper(kernels) = &mut device.kernels {
        let heads = [sms / 6, sms / 7, sms / 8];
        kernels.chip = Chip { sms, clusters: [sms / 2, sms / 4, sms / 8], heads };
    }
    Box::leak(Box::new(device))
}

/// The paths that the first GPU can run.
pub fn archs() -> Vec<Arch> {
    let capability = Device::capability_of(0).expect("the device tells its capability");
    Arch::ALL.into_iter().filter(|arch| arch.runs_on(capability)).collect()
}

/// What memory a test's buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    /// Of the device, in pieces that are mapped beside each other, as PyTorch's expandable segments are.
    Mapped,
    Managed,
    Pinned,
}

/// Memory between two guard zones, all of it NaN until written.
pub struct Memory {
    base: u64,
    kind: Kind,
    offset: usize,
    pub floats: usize,
}

/// Floats of each guard zone; a multiple of every alignment that matters.
pub const GUARD: usize = 1024;
const POISON: u8 = 0xff;
/// Bytes of a mapped piece: the granularity of the GPUs that there are.
pub const PIECE: usize = 2 << 20;

impl Memory {
    pub fn poisoned(floats: usize) -> Self {
        Self::new(Kind::Device, floats, 0)
    }

    pub fn of(values: &[f32]) -> Self {
        Self::poisoned(values.len()).with(values)
    }

    /// `offset` bytes off a 256-byte boundary.
    pub fn new(kind: Kind, floats: usize, offset: usize) -> Self {
        let bytes = Self::bytes(floats, offset);
        let mut base = 0;
        let mut host: *mut c_void = ptr::null_mut();
        // SAFETY: fresh memory of the size that is then filled.
        unsafe {
            match kind {
                Kind::Device => ok(sys::cuMemAlloc_v2(&mut base, bytes)),
                Kind::Mapped => base = map(bytes),
                Kind::Managed => ok(sys::cuMemAllocManaged(&mut base, bytes, 1)),
                Kind::Pinned => {
                    ok(sys::cuMemAllocHost_v2(&mut host, bytes));
                    base = host.addr() as u64;
                }
            }
            match kind {
                Kind::Pinned => host.cast::<u8>().write_bytes(POISON, bytes),
                _ => ok(sys::cuMemsetD8_v2(base, POISON, bytes)),
            }
            ok(sys::cuCtxSynchronize());
        }
        Self { base, kind, offset, floats }
    }

    fn bytes(floats: usize, offset: usize) -> usize {
        4 * (floats + 2 * GUARD) + offset
    }

    fn mapped_bytes(&self) -> usize {
        Self::bytes(self.floats, self.offset).next_multiple_of(PIECE)
    }

    pub fn address(&self) -> usize {
        self.base as usize + 4 * GUARD + self.offset
    }

    pub fn at(&self) -> u64 {
        self.address() as u64
    }

    pub fn with(self, values: &[f32]) -> Self {
        self.write(values);
        self
    }

    /// Also for streams that do not wait for the legacy one, where the driver's own copy may still be on its way when it returns.
    pub fn write(&self, values: &[f32]) {
        assert!(values.len() <= self.floats);
        // SAFETY: inside the allocation.
        unsafe {
            ok(sys::cuMemcpy(self.at(), values.as_ptr().addr() as u64, size_of_val(values)));
            ok(sys::cuStreamSynchronize(ptr::null_mut()));
        }
    }

    pub fn write_at(&self, index: usize, value: f32) {
        assert!(index < self.floats);
        // SAFETY: inside the allocation.
        unsafe {
            ok(sys::cuMemcpy(self.at() + 4 * index as u64, ptr::from_ref(&value).addr() as u64, 4));
            ok(sys::cuStreamSynchronize(ptr::null_mut()));
        }
    }

    /// The content, after everything enqueued has run.
    pub fn read(&self) -> Vec<f32> {
        let mut values = vec![0.0f32; self.floats];
        self.copy_to(self.at(), &mut values);
        values
    }

    /// The content as fp16, widened.
    pub fn read_half(&self, count: usize) -> Vec<f32> {
        read_halves(self.at(), count)
    }

    /// Fails if anything outside the buffer was written.
    pub fn check_guards(&self) {
        let mut zone = vec![0.0f32; GUARD];
        for start in [self.base + self.offset as u64, self.at() + 4 * self.floats as u64] {
            self.copy_to(start, &mut zone);
            assert!(zone.iter().all(|value| value.to_bits() == u32::MAX), "written outside the buffer");
        }
    }

    fn copy_to(&self, from: u64, values: &mut [f32]) {
        // SAFETY: inside the allocation.
        unsafe {
            ok(sys::cuCtxSynchronize());
            ok(sys::cuMemcpy(values.as_mut_ptr().addr() as u64, from, size_of_val(values)));
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`.
        unsafe {
            match self.kind {
                Kind::Pinned => sys::cuMemFreeHost(ptr::with_exposed_provenance_mut(self.base as usize)),
                Kind::Mapped => unmap(self.base, Self::bytes(self.floats, self.offset)),
                _ => sys::cuMemFree_v2(self.base),
            };
        }
    }
}

/// Maps so many bytes, rounded up, each piece by itself.
fn map(bytes: usize) -> u64 {
    let (mut base, mut memory, bytes) = (0, 0, bytes.next_multiple_of(PIECE));
    let location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    // SAFETY: the properties are plain numbers; addresses that were reserved here; a mapping keeps its memory.
    unsafe {
        let mut properties: sys::CUmemAllocationProp = std::mem::zeroed();
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location;
        ok(sys::cuMemAddressReserve(&mut base, bytes, 0, 0, 0));
        for piece in (base..base + bytes as u64).step_by(PIECE) {
            ok(sys::cuMemCreate(&mut memory, PIECE, &properties, 0));
            ok(sys::cuMemMap(piece, PIECE, 0, memory, 0));
            ok(sys::cuMemRelease(memory));
        }
        ok(sys::cuMemSetAccess(base, bytes, &sys::CUmemAccessDesc { location, flags }, 1));
    }
    base
}

/// Whether one GPU can use another's memory.
pub fn are_peers(device: i32, other: i32) -> bool {
    let mut can = 0;
    // SAFETY: writes one number.
    unsafe { ok(sys::cuDeviceCanAccessPeer(&mut can, device, other)) };
    can != 0
}

/// Lets the GPU read mapped memory, but not write it.
pub fn make_read_only(memory: &Memory) {
    set_access(memory.base, memory.mapped_bytes(), 0, sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ);
}

/// The same of one of its pieces.
pub fn make_piece_read_only(memory: &Memory, piece: usize) {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ;
    set_access(memory.base + (piece * PIECE) as u64, PIECE, 0, flags);
}

/// The same, and another GPU may write it.
pub fn make_writable_from(device: i32, memory: &Memory) {
    make_read_only(memory);
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    set_access(memory.base, memory.mapped_bytes(), device, flags);
}

fn set_access(base: u64, bytes: usize, device: i32, flags: sys::CUmemAccess_flags) {
    let location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device };
    // SAFETY: mapped by `map`, all of it.
    unsafe { ok(sys::cuMemSetAccess(base, bytes, &sys::CUmemAccessDesc { location, flags }, 1)) };
}

/// Takes a piece of mapped memory away. Its addresses stay reserved.
pub fn unmap_piece(memory: &Memory, piece: usize) {
    // SAFETY: mapped by `map`, and whoever asks for this looks there no more.
    unsafe { ok(sys::cuMemUnmap(memory.base + (piece * PIECE) as u64, PIECE)) };
}

fn unmap(base: u64, bytes: usize) -> CUresult {
    let bytes = bytes.next_multiple_of(PIECE);
    // SAFETY: mapped by `map`; of a piece that is gone already the driver says so.
    unsafe {
        for piece in (base..base + bytes as u64).step_by(PIECE) {
            sys::cuMemUnmap(piece, PIECE);
        }
        sys::cuMemAddressFree(base, bytes)
    }
}

/// Values as the kernels see them: rounded to fp16.
pub fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| half::f16::from_f32(*value).to_f32()).collect()
}

/// Values as fp16, two in the place of each float.
pub fn halves(values: &[f32]) -> Memory {
    let bits: Vec<u32> = values.iter().map(|value| u32::from(half::f16::from_f32(*value).to_bits())).collect();
    let floats: Vec<f32> = bits.chunks(2).map(|pair| f32::from_bits(pair[0] | pair[1] << 16)).collect();
    Memory::of(&floats)
}

/// Free memory of the current device.
pub fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two numbers.
    unsafe { ok(sys::cuMemGetInfo_v2(&mut free, &mut total)) };
    free
}

/// A stream.
pub struct OwnStream(pub sys::CUstream);

impl OwnStream {
    /// That does not wait for the legacy one.
    pub fn new() -> Self {
        Self::with(sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING)
    }

    /// That and the legacy one wait for each other.
    pub fn blocking() -> Self {
        Self::with(sys::CUstream_flags_enum::CU_STREAM_DEFAULT)
    }

    /// As [`OwnStream::new`], of the highest priority.
    pub fn foremost() -> Self {
        let (mut stream, mut greatest) = (ptr::null_mut(), 0);
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one int and one pointer.
        unsafe {
            ok(sys::cuCtxGetStreamPriorityRange(ptr::null_mut(), &mut greatest));
            ok(sys::cuStreamCreateWithPriority(&mut stream, flags, greatest));
        }
        Self(stream)
    }

    fn with(flags: sys::CUstream_flags_enum) -> Self {
        let mut stream = ptr::null_mut();
        // SAFETY: writes one pointer.
        unsafe { ok(sys::cuStreamCreate(&mut stream, flags as u32)) };
        Self(stream)
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: created above.
        unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// A part of the first GPU's multiprocessors with a stream of its own (a green context).
pub struct FewMultiprocessors {
    context: sys::CUgreenCtx,
    pub stream: sys::CUstream,
}

impl FewMultiprocessors {
    pub fn new(sms: u32) -> Self {
        let (mut context, mut stream, mut description) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: resources are plain numbers, of this device; each call writes what the next one takes.
        unsafe {
            let [mut all, mut part, mut rest]: [sys::CUdevResource; 3] = std::mem::zeroed();
            ok(sys::cuDeviceGetDevResource(0, &mut all, kind));
            let mut parts = 1;
            ok(sys::cuDevSmResourceSplitByCount(&mut part, &mut parts, &all, &mut rest, 0, sms));
            ok(sys::cuDevResourceGenerateDesc(&mut description, &mut part, 1));
            let flags = sys::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as u32;
            ok(sys::cuGreenCtxCreate(&mut context, description, 0, flags));
            let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            ok(sys::cuGreenCtxStreamCreate(&mut stream, context, flags, 0));
        }
        Self { context, stream }
    }
}

impl Drop for FewMultiprocessors {
    fn drop(&mut self) {
        // SAFETY: made above, and not used any more.
        unsafe {
            sys::cuStreamDestroy_v2(self.stream);
            sys::cuGreenCtxDestroy(self.context);
        }
    }
}

/// A graph of the caller's.
pub struct Captured {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

impl Captured {
    /// Of what is enqueued on the stream.
    pub fn new(stream: &OwnStream, enqueue: impl FnOnce()) -> Self {
        let mut captured = Self { graph: ptr::null_mut(), executable: ptr::null_mut() };
        // SAFETY: one capture on one stream of this thread.
        unsafe {
            let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;
            ok(sys::cuStreamBeginCapture_v2(stream.0, mode));
            enqueue();
            ok(sys::cuStreamEndCapture(stream.0, &mut captured.graph));
            ok(sys::cuGraphInstantiateWithFlags(&mut captured.executable, captured.graph, 0));
        }
        captured
    }

    pub fn launch(&self, stream: &OwnStream) {
        // SAFETY: the graph's buffers live.
        unsafe { ok(sys::cuGraphLaunch(self.executable, stream.0)) };
    }

    /// Which nodes one follows, by the order in which they were captured, and whether it may begin while they end.
    pub fn in_front_of(&self, node: usize) -> Vec<(usize, bool)> {
        let mut nodes = [ptr::null_mut(); 64];
        let (mut from, mut to) = (nodes, nodes);
        // SAFETY: an edge is plain numbers.
        let mut edges: [sys::CUgraphEdgeData; 64] = unsafe { std::mem::zeroed() };
        let (mut node_count, mut edge_count) = (nodes.len(), edges.len());
        // SAFETY: room for as many as the counts say.
        unsafe {
            ok(sys::cuGraphGetNodes(self.graph, nodes.as_mut_ptr(), &mut node_count));
            let (from, to, edges) = (from.as_mut_ptr(), to.as_mut_ptr(), edges.as_mut_ptr());
            ok(sys::cuGraphGetEdges_v2(self.graph, from, to, edges, &mut edge_count));
        }
        let early = sys::CUgraphDependencyType_enum::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;
        let place = |of| nodes[..node_count].iter().position(|&node| node == of).expect("a node of the graph");
        let edges = from.into_iter().zip(to).zip(edges).take(edge_count);
        let mut found: Vec<_> = edges
            .filter(|&((_, to), _)| place(to) == node)
            .map(|((from, _), edge)| (place(from), edge.type_ == early))
            .collect();
        found.sort_unstable();
        found
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: not used any more.
        unsafe {
            ok(sys::cuGraphExecDestroy(self.executable));
            ok(sys::cuGraphDestroy(self.graph));
        }
    }
}

/// The handle on this memory.
impl super::api::Block {
    pub fn forward(
        &self,
        x: &Memory,
        output: &Memory,
        batch: usize,
        seq_len: usize,
        stream: sys::CUstream,
    ) -> Result<(), String> {
        match self.call(x.address(), output.address(), batch, seq_len, stream.cast()) {
            solve::error::SolveStatus::Ok => Ok(()),
            status => Err(format!("{status:?}: {}", super::api::message())),
        }
    }
}

/// Device memory that is not a test's own.
pub fn read_floats(address: u64, count: usize) -> Vec<f32> {
    let mut values = vec![0.0f32; count];
    // SAFETY: the caller names memory of that size.
    unsafe {
        ok(sys::cuCtxSynchronize());
        ok(sys::cuMemcpy(values.as_mut_ptr().addr() as u64, address, 4 * count));
    }
    values
}

/// The same, fp16 widened.
pub fn read_halves(address: u64, count: usize) -> Vec<f32> {
    let floats = read_floats(address, count / 2);
    let halves = floats.iter().flat_map(|float| [float.to_bits() as u16, (float.to_bits() >> 16) as u16]);
    halves.map(|bits| half::f16::from_bits(bits).to_f32()).collect()
}

/// Fills device memory with NaN.
pub fn poison(address: u64, bytes: usize) {
    // SAFETY: the caller names memory of that size.
    unsafe {
        ok(sys::cuMemsetD8_v2(address, POISON, bytes));
        ok(sys::cuCtxSynchronize());
    }
}
