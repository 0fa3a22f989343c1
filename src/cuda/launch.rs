//! The one place that launches kernels: steps with their arguments, one by one into a stream.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys;
use sys::CUlaunchAttributeID_enum as Attribute;

use super::driver::check;
use super::tensor_map::TensorMap;
use crate::error::Error;
use crate::options::Stream;

/// The stream as the driver takes it. 1 is `CU_STREAM_LEGACY`.
#[must_use]
pub fn raw(stream: Stream) -> sys::CUstream {
    ptr::with_exposed_provenance_mut(stream.0)
}

/// The driver's number of the stream, which no other ever has.
pub fn number_of(stream: Stream) -> Result<u64, Error> {
    let mut number = 0;
    // SAFETY: the caller's live stream; writes one number.
    check("cuStreamGetId", unsafe { sys::cuStreamGetId(raw(stream), &mut number) })?;
    Ok(number)
}

/// A loaded kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Function(pub(super) sys::CUfunction);

impl Function {
    /// Not yet loaded.
    pub(super) const NONE: Self = Self(ptr::null_mut());

    /// Bytes of local memory a thread: not 0 where registers are spilled.
    pub fn local_bytes(self) -> Result<i32, Error> {
        let mut bytes = 0;
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        // SAFETY: writes one number; the function is loaded for good.
        check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut bytes, attribute, self.0) })?;
        Ok(bytes)
    }

    /// Clusters of so many blocks that the current device runs at the same time.
    pub fn most_clusters(self, blocks: u32, threads: u32, shared: u32) -> Result<usize, Error> {
        // SAFETY: an attribute is plain numbers.
        let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        attribute.id = Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim = cluster_of(blocks);
        let config = sys::CUlaunchConfig {
            gridDimX: blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: ptr::null_mut(),
            attrs: &mut attribute,
            numAttrs: 1,
        };
        let mut count = 0;
        // SAFETY: writes one number; the function is loaded for good.
        let result = unsafe { sys::cuOccupancyMaxActiveClusters(&mut count, self.0, &config) };
        check("cuOccupancyMaxActiveClusters", result)?;
        Ok(usize::try_from(count).unwrap_or(0).max(1))
    }
}

// SAFETY: a function may be launched from any thread in which its context is current.
unsafe impl Send for Function {}
// SAFETY: as above; it is never changed after loading.
unsafe impl Sync for Function {}

/// When a step may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// After the step before it has ended.
    Full,
    /// When every block of the step before has allowed it or ended (griddepcontrol); the kernel itself waits for the data.
    Programmatic,
    /// Likewise, but the kernel need not wait: what comes after it is to come after the step before, too.
    Beside,
}

/// How blocks of a grid that wait for each other come to run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// They do not wait, or nothing keeps them out.
    Any,
    /// All of them start at once, or the launch fails (cooperative).
    Cooperative,
    /// They find places before other grids that wait for one, by this priority.
    Foremost(i32),
}

/// One launch: a kernel, its grid and its arguments.
#[derive(Clone, PartialEq)]
pub struct Step {
    /// For error messages.
    pub what: &'static str,
    /// The kernel.
    pub function: Function,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory in a block.
    pub shared: u32,
    /// Its blocks start two by two, on multiprocessors side by side: clusters that the kernel does not know of.
    pub pairs: bool,
    /// When it may start.
    pub edge: Edge,
    /// How its blocks come to run together.
    pub residency: Residency,
    /// The parameters of the kernel.
    pub arguments: Arguments,
}

/// Most parameters that a kernel has.
const MAX_PARAMETERS: usize = 10;
/// Most bytes of them: the few-token kernel's four tensor maps and what it needs to compute the call again.
const MAX_BYTES: usize = 768;

/// The values of a kernel's parameters, each aligned for its type.
#[derive(Clone, PartialEq)]
pub struct Arguments {
    memory: Memory,
    offsets: [usize; MAX_PARAMETERS],
    count: usize,
    end: usize,
}

/// Tensor maps are aligned to 64 bytes, every other parameter to less.
#[derive(Clone, Copy, PartialEq)]
#[repr(C, align(128))]
struct Memory([u8; MAX_BYTES]);

impl Default for Arguments {
    fn default() -> Self {
        Self::new()
    }
}

impl Arguments {
    /// No parameters yet.
    #[must_use]
    pub fn new() -> Self {
        Self { memory: Memory([0; MAX_BYTES]), offsets: [0; MAX_PARAMETERS], count: 0, end: 0 }
    }

    /// One parameter of 8 bytes for each value, an address or an integer; an int reads the low half.
    #[must_use]
    pub fn each(values: &[u64]) -> Self {
        Self::new().each_more(values)
    }

    /// The same, behind the parameters so far.
    #[must_use]
    pub fn each_more(self, values: &[u64]) -> Self {
        values.iter().fold(self, |arguments, value| arguments.words(&[*value]))
    }

    /// One parameter that is a tensor map.
    #[must_use]
    pub fn map(self, map: &TensorMap) -> Self {
        self.maps(&[map])
    }

    /// One parameter that is a struct of tensor maps.
    #[must_use]
    pub fn maps(mut self, maps: &[&TensorMap]) -> Self {
        let start = self.end.next_multiple_of(64);
        self.end = start;
        for map in maps {
            self = self.append(map.as_bytes());
        }
        self.finish(start)
    }

    /// One parameter that is a struct of 8-byte members (two ints share one: see [`pair`]).
    #[must_use]
    pub fn words(mut self, words: &[u64]) -> Self {
        let start = self.end.next_multiple_of(8);
        self.end = start;
        for word in words {
            self = self.append(&word.to_ne_bytes());
        }
        self.finish(start)
    }

    /// One parameter that is a struct of all of these and so many words.
    #[must_use]
    pub fn containing(mut self, others: &Self, words: &[u64]) -> Self {
        let start = self.end.next_multiple_of(8);
        self.end = start;
        self = self.append(&others.memory.0[..others.end]);
        for word in words {
            self = self.append(&word.to_ne_bytes());
        }
        self.finish(start)
    }

    /// All of their memory, in words of 8 bytes.
    pub fn each_word(&self) -> impl Iterator<Item = u64> {
        self.memory.0.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// Gives one of these words another value.
    pub fn set_word(&mut self, word: usize, value: u64) {
        self.memory.0[8 * word..][..8].copy_from_slice(&value.to_ne_bytes());
    }

    fn append(mut self, bytes: &[u8]) -> Self {
        let end = self.end + bytes.len();
        self.memory.0[self.end..end].copy_from_slice(bytes);
        self.end = end;
        self
    }

    fn finish(mut self, start: usize) -> Self {
        self.offsets[self.count] = start;
        self.count += 1;
        self
    }

    /// Where each parameter lies, as the driver takes them.
    pub(super) fn pointers(&self) -> [*mut c_void; MAX_PARAMETERS] {
        let base: *const u8 = self.memory.0.as_ptr();
        self.offsets.map(|offset| base.wrapping_add(offset).cast_mut().cast())
    }
}

/// Two ints side by side in a struct.
#[must_use]
pub fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// A cluster of so many neighbours.
#[must_use]
pub(super) fn cluster_of(blocks: u32) -> sys::CUlaunchAttributeValue_union__bindgen_ty_1 {
    sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 }
}

/// Enqueues one step.
///
/// # Safety
/// The arguments are those of the kernel, in order, and the memory that they name has the sizes that the step's grid is made for.
pub unsafe fn launch(step: &Step, stream: Stream) -> Result<(), Error> {
    // SAFETY: an attribute is plain numbers.
    let mut attributes: [sys::CUlaunchAttribute; 3] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    if step.edge != Edge::Full {
        attributes[count].id = Attribute::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    if step.pairs {
        attributes[count].id = Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[count].value.clusterDim = cluster_of(2);
        count += 1;
    }
    match step.residency {
        Residency::Any => {}
        Residency::Cooperative => {
            attributes[count].id = Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            attributes[count].value.cooperative = 1;
            count += 1;
        }
        Residency::Foremost(priority) => {
            attributes[count].id = Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY;
            attributes[count].value.priority = priority;
            count += 1;
        }
    }
    let config = sys::CUlaunchConfig {
        gridDimX: step.grid[0],
        gridDimY: step.grid[1],
        gridDimZ: step.grid[2],
        blockDimX: step.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: step.shared,
        hStream: raw(stream),
        attrs: attributes.as_mut_ptr(),
        numAttrs: count as u32,
    };
    let mut parameters = step.arguments.pointers();
    // SAFETY: the caller's promise; the parameters point into the step, which outlives the call.
    let result = unsafe { sys::cuLaunchKernelEx(&config, step.function.0, parameters.as_mut_ptr(), ptr::null_mut()) };
    check(step.what, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arguments: &Arguments, count: usize) -> Vec<u64> {
        arguments.each_word().take(count).collect()
    }

    fn offsets(arguments: &Arguments) -> Vec<usize> {
        let base = arguments.memory.0.as_ptr().addr();
        arguments.pointers()[..arguments.count].iter().map(|pointer| pointer.addr() - base).collect()
    }

    #[test]
    fn parameters_lie_as_the_kernels_declare_them() {
        // SAFETY: a map is plain numbers.
        let map: TensorMap = unsafe { std::mem::zeroed() };
        let arguments = Arguments::each(&[1, 2]).map(&map).words(&[3, 4]).maps(&[&map, &map]);
        assert_eq!(offsets(&arguments), [0, 8, 64, 192, 256]);
        assert_eq!(arguments.end, 512);
        assert_eq!([arguments.each_word().nth(24), arguments.each_word().nth(25)], [Some(3), Some(4)]);
        assert_eq!(pair(1, 2).to_ne_bytes(), [1, 0, 0, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn the_last_parameter_may_contain_others() {
        let exact = Arguments::new().words(&[7, 8, 9]);
        let last = Arguments::each(&[1]).containing(&exact, &[20, 21]);
        assert_eq!((offsets(&last), words(&last, 7)), (vec![0, 8], vec![1, 7, 8, 9, 20, 21, 0]));
    }
}
