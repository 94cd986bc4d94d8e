/** What `tagferry logs` asks where the journal is not to be read: the last lines that the daemon keeps itself. */
import type { RecentLines } from '../base/recent-lines.ts';
import type { ControlRoutes } from './control-server.ts';

/** The first line says how many of the following were there before: `{"kept":n}`. Then a line of the log each. */
export function logRoutes(recent: RecentLines | undefined): ControlRoutes {
  return {
    /** With `follow` on and on, with `{"missed":n}` where the caller was too slow. */
    logs: async ({ follow }, { signal, write }) => {
      let { lines, next } = recent?.since(0) ?? { lines: [], next: 0 };
      await write(`{"kept":${lines.length}}\n`);
      for (;;) {
        // One by one, so that a slow reader costs no more than a line.
        for (const line of lines) await write(`${line}\n`);
        if (follow !== true || recent === undefined) return;
        await recent.changed(next, signal);
        if (signal.aborted) return;
        const more = recent.since(next);
        if (more.missed > 0) await write(`{"missed":${more.missed}}\n`);
        ({ lines, next } = more);
      }
    },
  };
}
