//! Handles are numbers that are never reused, so that a destroyed or invented one is an error and not a crash.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::backend::Block;
use crate::error::Error;

/// Far from anything that is an address or a small number, and odd.
const FIRST: usize = 0x50_1bed_0001;

struct Registry {
    blocks: HashMap<usize, Arc<Block>>,
    next: usize,
}

static REGISTRY: RwLock<Option<Registry>> = RwLock::new(None);

/// Keeps the block and names it.
pub fn insert(block: Block) -> usize {
    let mut guard = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    let registry = guard.get_or_insert_with(|| Registry { blocks: HashMap::new(), next: FIRST });
    let handle = registry.next;
    registry.next += 2;
    registry.blocks.insert(handle, Arc::new(block));
    handle
}

/// The block of this name, alive for as long as the caller holds it.
pub fn get(handle: usize) -> Result<Arc<Block>, Error> {
    if handle == 0 {
        return Err(Error::Null { argument: "block" });
    }
    let guard = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    guard.as_ref().and_then(|registry| registry.blocks.get(&handle)).cloned().ok_or(Error::BadHandle { handle })
}

/// Forgets the block; its memory goes with its last user.
pub fn remove(handle: usize) -> Result<(), Error> {
    let mut guard = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    let block = guard.as_mut().and_then(|registry| registry.blocks.remove(&handle));
    drop(guard);
    block.map(drop).ok_or(Error::BadHandle { handle })
}
