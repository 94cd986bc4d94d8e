import { PEERS, peersHere, pullPlugOfPeer } from '../../test/prove/machine/peers.ts';
import type { Result, Task } from './results.ts';
import { table } from './table.ts';

const CUTS = 5;

/** The same power cuts for other programs, for comparison. */
export function peerTasks(seed: number): Task[] {
  return peersHere().map((name) => ({
    part: 'peers',
    name: `${name}, seed ${seed}`,
    minutes: 4,
    run: async (say) => ({ report: await pullPlugOfPeer(name, { seed, cuts: CUTS, say }), wrong: [] }),
  }));
}

/** Returns the page section. */
export function peersText(runs: readonly Extract<Result, { part: 'peers' }>[]): string {
  const rows = runs.map(({ name, report: { peer, version, speaks, cuts, missingAfterStop } }) => [
    name,
    `${version}, ${PEERS[peer].queue}`,
    speaks === 'relp' ? 'RELP' : 'sent 5 s before the cut',
    cuts.length,
    cuts.reduce((sum, { taken }) => sum + taken, 0),
    cuts.reduce((sum, { missing }) => sum + missing, 0),
    missingAfterStop ?? 'did not stop in time',
  ]);
  return table(
    [
      'program',
      'version, queue',
      'accepted',
      'cuts',
      'accepted lines, all cuts',
      'missing',
      'missing after a clean stop',
    ],
    rows,
  );
}
