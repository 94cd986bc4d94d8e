import { constants } from 'node:os';
import type { Slotted } from './schedule.ts';
import { pause } from './ways/way.ts';
import type { World } from './world.ts';

/** A fault of a gateway or its environment. It is active between `begin` and `end`. */
export interface Fault extends Slotted {
  /** No shutdown can complete during the fault, so the service manager kills the agent. */
  outlivesStops?: boolean;
  begin(world: World): Promise<void> | void;
  /** Resolves when everything else works during the fault. */
  stillWorks?(world: World): Promise<void>;
  end?(world: World): Promise<void> | void;
}

const DAY_MS = 86_400_000;
const { EIO, ENOSPC, EROFS } = constants.errno;
const SHORT = [500, 4_000] as const;
const AT_ONCE = [0, 0] as const;

/** Kills and restarts the agent, as a service manager does. */
async function crash(world: World): Promise<void> {
  await world.agent.end('SIGKILL');
  world.farEnd.crashed();
  world.launch();
}

/** Writes new configuration files and signals the agent. */
export async function reload(world: World, more: Record<string, string> = {}, tags = ''): Promise<void> {
  await world.configure(more, tags);
  // SIGHUP ends a process during its startup, which reads the new files anyway.
  if (world.agent.hasBeenReady) world.agent.signal('SIGHUP');
}

const platform = (begin: Fault['begin']): Fault => ({
  slot: 'platform',
  holdMs: [1_000, 6_000],
  begin,
  end: (world) => world.platform.restore(),
});
const disk = (orders: string, holdMs: Fault['holdMs'] = SHORT): Fault => ({
  slot: 'disk',
  holdMs,
  begin: (world) => world.orders(orders),
  end: (world) => world.orders(''),
});
const clock = (offsetMs: number): Fault => ({
  slot: 'clock',
  holdMs: SHORT,
  begin: (world) => world.clock.set(offsetMs),
  end: (world) => world.clock.set(0),
});

/** Sync duration at which every source experiences back-pressure. */
const SLOW_SYNC = 'sync_delay_ms 1500';
const BURST = 3_000;

export const FAULTS: Readonly<Record<string, Fault>> = {
  SIGKILL: { slot: 'process', holdMs: AT_ONCE, begin: crash },
  SIGTERM: {
    slot: 'process',
    holdMs: AT_ONCE,
    begin: async (world) => {
      await world.stop('other faults');
      world.launch();
    },
  },
  'SIGSTOP for longer than the token lifetime': {
    slot: 'process',
    holdMs: [9_000, 12_000],
    begin: (world) => world.agent.signal('SIGSTOP'),
    end: (world) => {
      world.agent.signal('SIGCONT');
      world.farEnd.cutOff();
    },
  },
  'machine restart': {
    slot: 'process',
    holdMs: AT_ONCE,
    begin: async (world) => {
      world.reboot();
      await crash(world);
    },
  },
  'platform refuses connections': {
    ...platform((world) => world.platform.refuse()),
    end: async (world) => {
      await world.platform.portal.start();
    },
  },
  'machine restart during an outage': {
    slot: 'process',
    holdMs: SHORT,
    // The machine starts without network and without a battery-backed clock.
    begin: async (world) => {
      world.names(false);
      world.platform.portal.cut();
      world.farEnd.cutOff();
      // A value of the asset that is checked afterwards is buffered during the restart.
      if (world.agent.hasBeenReady) await world.fresh.fresh('a', 60_000);
      world.clock.to1970();
      world.reboot();
      await crash(world);
    },
    end: (world) => {
      world.clock.set(0);
      world.names(true);
    },
  },
  'platform hangs': platform((world) => world.platform.hang()),
  'platform resets during a response': platform((world) => world.platform.reset()),
  'platform responses are lost': platform((world) => world.platform.swallow()),
  'another server responds with 2xx': platform((world) => world.platform.foreign(Math.floor(world.chance() * 100))),
  'random statuses from 401 to 504': platform((world) => world.platform.storm(world.chance)),
  'portal with a wrong Date': {
    ...platform((world) => world.platform.foreignDate(world.chance() < 0.5 ? 3_650 * DAY_MS : -DAY_MS)),
    stillWorks: (world) => world.events.reacts(),
  },
  'malformed responses': platform((world) => world.platform.malformed(Math.floor(world.chance() * 100))),
  'platform name not resolved': {
    ...platform((world) => {
      world.names(false);
      world.platform.portal.cut();
      world.farEnd.cutOff();
    }),
    end: (world) => world.names(true),
  },
  'unresponsive name server': {
    slot: 'names',
    holdMs: SHORT,
    begin: (world) => world.silenceNames(),
    stillWorks: (world) => world.freshBesideLookups(),
    end: (world) => world.restoreNames(),
  },
  'platform revokes all tokens': {
    slot: 'session',
    holdMs: AT_ONCE,
    begin: (world) => world.sandbox.tokens.expireAll(world.chance() < 0.5),
  },
  'clock reset to 1970': { ...clock(0), begin: (world) => world.clock.to1970() },
  'clock two weeks ahead': clock(14 * DAY_MS),
  'clock two weeks back': clock(-14 * DAY_MS),
  'oversized request bodies': {
    slot: 'memory',
    holdMs: AT_ONCE,
    begin: async (world) => {
      const { agent } = world;
      const headers = { 'Content-Type': 'application/json' };
      const bodies = [Buffer.alloc(9_000_000, ' '), '['.repeat(7_000_000), `{"values":[${'{},'.repeat(2_000_000)}{}]}`];
      await Promise.all(
        bodies.map((body) =>
          Promise.race([agent.call(agent.ingest, '/v1/values', { body, headers }).catch(() => {}), pause(5_000)]),
        ),
      );
    },
  },
  'file descriptors exhausted': {
    slot: 'handles',
    holdMs: SHORT,
    // At startup, the program needs file descriptors to load.
    begin: (world) => {
      if (world.agent.hasBeenReady) world.agent.limitHandles(world.agent.handles());
    },
    end: (world) => world.agent.limitHandles(1_024),
  },
  'disk full': {
    slot: 'disk',
    holdMs: SHORT,
    begin: (world) => world.disk.fill(),
    end: (world) => world.disk.free(),
  },
  'writes fail with ENOSPC': disk(`refuse_writes ${ENOSPC}`),
  'writes fail with EROFS': disk(`refuse_writes ${EROFS}`),
  'writes fail with EIO': disk(`refuse_writes ${EIO}`),
  'one sync fails': disk(`fail_sync 2 ${EIO}`),
  'one write fails': disk(`fail_write 3 ${EIO}`),
  'slow disk': disk('sync_delay_ms 400'),
  'disk hangs': { ...disk('hold_syncs'), outlivesStops: true },
  'back-pressure on MQTT': {
    slot: 'disk',
    holdMs: SHORT,
    begin: async (world) => {
      world.orders(SLOW_SYNC);
      await world.mqtt.burst(BURST);
    },
    end: (world) => world.orders(''),
  },
  'oversized MQTT message': {
    slot: 'broker',
    holdMs: SHORT,
    begin: (world) => world.mqtt.publishOversized(),
    stillWorks: async (world) => void (await world.freshMs()),
  },
  'unresponsive reaction receiver': {
    slot: 'receiver',
    holdMs: SHORT,
    begin: (world) => world.events.silence(true),
    stillWorks: (world) => world.events.reacts(),
    end: (world) => world.events.silence(false),
  },
  'MQTT broker killed': {
    slot: 'broker',
    holdMs: SHORT,
    begin: (world) => world.mqtt.broker.stop('SIGKILL'),
    end: (world) => world.mqtt.startBroker(),
  },
  'unresponsive network share': {
    slot: 'share',
    // Longer than the token lifetime, so that the session must renew as well.
    holdMs: [9_000, 12_000],
    begin: (world) => world.hangShare(),
    stillWorks: async (world) => void (await world.freshMs()),
    end: (world) => world.releaseShare(),
  },
  'Modbus device hangs': {
    slot: 'device',
    holdMs: SHORT,
    begin: (world) => world.modbus.hang(true),
    end: (world) => world.modbus.hang(false),
  },
  'settings reloaded': {
    slot: 'files',
    holdMs: AT_ONCE,
    begin: (world) => reload(world, { POST_INTERVAL: world.chance() < 0.5 ? '100ms' : '400ms' }),
  },
  'invalid configuration reloaded': {
    slot: 'files',
    holdMs: SHORT,
    begin: (world) => reload(world, {}, `  X: ${'a'.repeat(100_000)}\n`),
    end: (world) => reload(world),
  },
};

/** All faults, including those of inputs that exist only in a complete world. */
export const WHOLE_FAULTS: Readonly<Record<string, Fault>> = {
  ...FAULTS,
  'NATS server killed': {
    slot: 'stream',
    holdMs: SHORT,
    begin: (world) => world.nats?.killServer(),
    end: (world) => world.nats?.startServer(),
  },
  'back-pressure on NATS': {
    slot: 'disk',
    holdMs: SHORT,
    begin: async (world) => {
      world.orders(SLOW_SYNC);
      await world.nats?.burst(BURST);
    },
    end: (world) => world.orders(''),
  },
  'back-pressure on Sparkplug': {
    slot: 'disk',
    holdMs: SHORT,
    begin: async (world) => {
      world.orders(SLOW_SYNC);
      await world.sparkplug?.burst(BURST);
    },
    end: (world) => world.orders(''),
  },
  'oversized NATS message': {
    slot: 'stream',
    holdMs: SHORT,
    begin: (world) => world.nats?.publishOversized(),
    stillWorks: async (world) => void (await world.freshMs()),
  },
  'frozen OPC UA reader': {
    slot: 'cell',
    holdMs: SHORT,
    begin: (world) => world.freezeReader(),
    stillWorks: (world) => world.readerReplaced(),
  },
  'OPC UA server hangs': {
    slot: 'cell',
    holdMs: SHORT,
    begin: (world) => world.opcua?.hang(true),
    end: (world) => world.opcua?.hang(false),
  },
};
