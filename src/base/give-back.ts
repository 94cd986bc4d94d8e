/**
 * Gives the memory of what is not needed any more back at once: nobody may read it from here on, another thread (zlib's) least of all.
 * What is only dropped stands until V8 collects the whole heap, and for that it waits until some 64 MB of such have gathered: large
 * bodies that are read and dropped, or given up, would end a small gateway.
 */
export function giveBack({ buffer, byteLength }: ArrayBufferView): void {
  // A part of a larger one is not ours alone.
  if (byteLength === buffer.byteLength && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
