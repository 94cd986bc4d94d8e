let isReceived = false;
const remember = () => {
  isReceived = true;
};

/** Remembers SIGHUP, which by default ends the process. Called before the modules of the agent are loaded. */
export function rememberHangup(): void {
  process.on('SIGHUP', remember);
}

/** Calls the function for every SIGHUP from now on, and once if one has been remembered. */
export function onHangup(handle: () => void): void {
  process.on('SIGHUP', handle);
  process.off('SIGHUP', remember);
  if (isReceived) handle();
}
