//! Handles are numbers that are never reused, so that a destroyed or invented one is an error and not a crash.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::backend::Block;
use crate::error::Error;

/// Far from anything that is an address or a small number, and odd.
const FIRST: usize = 0x50_1bed_0001;

struct Registry {
    blocks: BTreeMap<usize, Arc<Entry>>,
    next: usize,
}

/// None once the block is destroyed.
type Entry = RwLock<Option<Block>>;

static REGISTRY: RwLock<Option<Registry>> = RwLock::new(None);

/// Keeps the block and names it.
pub fn insert(block: Block) -> usize {
    let mut guard = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    let registry = guard.get_or_insert_with(|| Registry { blocks: BTreeMap::new(), next: FIRST });
    let handle = registry.next;
    registry.next += 2;
    registry.blocks.insert(handle, Arc::new(RwLock::new(Some(block))));
    handle
}

/// Calls the block of this name, which lives at least as long as the call.
pub fn with<T>(handle: usize, call: impl FnOnce(&Block) -> Result<T, Error>) -> Result<T, Error> {
    if handle == 0 {
        return Err(Error::Null { argument: "block" });
    }
    let guard = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    let entry = guard.as_ref().and_then(|registry| registry.blocks.get(&handle)).cloned();
    drop(guard);
    let entry = entry.ok_or(Error::BadHandle { handle })?;
    let block = entry.read().unwrap_or_else(PoisonError::into_inner);
    call(block.as_ref().ok_or(Error::BadHandle { handle })?)
}

/// Frees the block, when the calls of it that have begun are over.
pub fn remove(handle: usize) -> Result<(), Error> {
    let mut guard = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    let entry = guard.as_mut().and_then(|registry| registry.blocks.remove(&handle));
    drop(guard);
    let entry = entry.ok_or(Error::BadHandle { handle })?;
    let block = entry.write().unwrap_or_else(PoisonError::into_inner).take();
    drop(block);
    Ok(())
}
