import { spawn } from 'node:child_process';

/** Shows addresses in the browser of the desktop; nothing happens where there is none. */
export function openPages(addresses: readonly string[], environment: NodeJS.ProcessEnv): void {
  if (!environment.DISPLAY && !environment.WAYLAND_DISPLAY) return;
  for (const address of addresses) {
    const child = spawn('xdg-open', [address], { detached: true, stdio: 'ignore' });
    child.on('error', () => {});
    child.unref();
  }
}
