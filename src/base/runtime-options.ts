/**
 * Options of the Node runtime, chosen for low memory use. The wrapper in the package (`scripts/deb/wrapper`) passes
 * the same options to avoid starting the runtime twice.
 */
const RUNTIME_FLAGS: readonly string[] = [
  // Small young generation of the heap.
  '--max-semi-space-size=1',
  // Allows garbage from startup to be collected.
  '--expose-gc',
  // Building the heap at startup takes 8 MB less than loading the snapshot.
  '--no-node-snapshot',
];

const RUNTIME_VARIABLES: Readonly<Record<string, string>> = {
  // By default, the C library creates one arena per thread.
  MALLOC_ARENA_MAX: '2',
  // Return free memory at the end of an arena.
  MALLOC_TRIM_THRESHOLD_: '131072',
  // Allocate socket buffers outside the arenas to avoid fragmentation.
  MALLOC_MMAP_THRESHOLD_: '32768',
};

/**
 * Restarts this process with the agent's options, unless it already has them. Options set by the user take
 * precedence.
 */
export function useRuntimeOptions(): void {
  const { execPath, execArgv, argv, env } = process;
  const hasFlags = RUNTIME_FLAGS.every((flag) => execArgv.includes(flag));
  const hasVariables = Object.keys(RUNTIME_VARIABLES).every((name) => name in env);
  if (hasFlags && hasVariables) return;
  const flags = [...RUNTIME_FLAGS.filter((flag) => !execArgv.includes(flag)), ...execArgv];
  process.execve?.(execPath, [execPath, ...flags, ...argv.slice(1)], { ...RUNTIME_VARIABLES, ...env });
}
