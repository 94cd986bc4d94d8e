import { join } from 'node:path';
import type { Source } from '../../config/tags.ts';
import type { Endpoint, Item } from '../../opcua/protocol.ts';
import type { Point } from '../points.ts';
import type { OpcuaSpec, OpcuaValue } from './opcua-spec.ts';

/** The last digits of a quotient are chance: the server's dead band never leaves out what the agent's would not. */
const CHANCE = 1 - 1e-9;

/** What the server is to do for a value. */
export function itemOf({ spec, everyMs, shaping }: Point<OpcuaValue>): Item {
  const { deadband, scale, maxSilenceMs } = shaping;
  // A share means another thing to a server; and what it leaves out cannot end a silence.
  const isForServer = deadband !== undefined && 'units' in deadband && deadband.units > 0 && maxSilenceMs === undefined;
  return {
    ...spec,
    samplingMs: everyMs,
    ...(isForServer ? { deadband: (deadband.units / Math.abs(scale)) * CHANCE } : {}),
  };
}

/** Where this gateway's own certificate lies unless tags.yaml names one. */
export function endpointOf({ spec }: Source<OpcuaSpec>, stateDir: string): Endpoint {
  const { identity = { folder: join(stateDir, 'opcua') }, ...endpoint } = spec;
  return { ...endpoint, identity };
}
