/**
 * Releases the memory of a buffer immediately. No code may access the buffer afterwards, including other threads such
 * as zlib. Without this, V8 frees the memory only after about 64 MB of allocations, so large discarded bodies could
 * exhaust the memory of a small gateway.
 */
export function releaseMemory({ buffer, byteLength }: ArrayBufferView): void {
  // The memory of a slice is shared with other slices.
  if (byteLength === buffer.byteLength && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
