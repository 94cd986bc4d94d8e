import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SANDBOX_CREDENTIALS } from '../../sandbox/sandbox.ts';
import { DEMO_TAGS, GATEWAY_ASSET } from './plant.ts';

/** Where everything of the demo's agent stands, below one temporary folder. */
export interface AgentPlace {
  folder: string;
  config: string;
  log: string;
  ingest: string;
  /** Of the live page, on loopback; and the token that it wants. */
  ops: { port: number; token: string };
  /** What the reaction's command leaves: the event that it got. */
  reactionFile: string;
}

export function placeIn(folder: string, ops: AgentPlace['ops']): AgentPlace {
  return {
    folder,
    config: join(folder, 'config'),
    log: join(folder, 'agent.log'),
    ingest: join(folder, 'ingest.sock'),
    ops,
    reactionFile: join(folder, 'close-valve.event'),
  };
}

export interface AgentSettings {
  platformUrl: string;
  webhookPort: number;
  backfillValuesPerSecond: number;
}

/** Writes agent.env, tags.yaml, reactions.yaml and the command of the reaction. */
export function writeAgentFiles(place: AgentPlace, wanted: AgentSettings): void {
  const { platformUrl, webhookPort } = wanted;
  mkdirSync(place.config);
  const settings = {
    PLATFORM_URL: platformUrl,
    CLIENT_ID: SANDBOX_CREDENTIALS.clientId,
    CLIENT_SECRET: SANDBOX_CREDENTIALS.clientSecret,
    TECHNICAL_USERNAME: SANDBOX_CREDENTIALS.technicalUsername,
    TECHNICAL_PASSWORD: SANDBOX_CREDENTIALS.technicalPassword,
    STATE_DIR: join(place.folder, 'state'),
    INGEST_LISTEN: `unix:${place.ingest}`,
    OPS_LISTEN: `127.0.0.1:${place.ops.port}`,
    OPS_TOKEN: place.ops.token,
    WEBHOOK_LISTEN: `127.0.0.1:${webhookPort}`,
    WEBHOOK_URL: `http://127.0.0.1:${webhookPort}/webhook`,
    POST_INTERVAL: '1s',
    COMMIT_INTERVAL: '300ms',
    REQUESTS_PER_MINUTE: '0',
    BACKFILL_VALUES_PER_SECOND: String(wanted.backfillValuesPerSecond),
    // A small disk that is nearly full is no reason to refuse a demo.
    BUFFER_MIN_FREE: '0',
    BUFFER_MAX_BYTES: '64MiB',
    LOG_FORMAT: 'json',
  };
  const lines = Object.entries(settings).map(([key, value]) => `${key}=${value}\n`);
  writeFileSync(join(place.config, 'agent.env'), lines.join(''), { mode: 0o600 });
  writeFileSync(join(place.config, 'tags.yaml'), tagsFile());
  const command = join(place.folder, 'close-valve');
  writeFileSync(command, COMMAND, { mode: 0o700 });
  writeFileSync(join(place.config, 'reactions.yaml'), reactionsFile(command, place.reactionFile));
}

function tagsFile(): string {
  const pushed = DEMO_TAGS.map(
    ({ name, asset, instrumentation, key, unit }) =>
      `  ${name}: { asset: ${asset}, instrumentation: ${instrumentation}, values: { ${key}: { unit: { code: ${unit} } } } }`,
  );
  return `sources:
  self: { host: true, every: 1s }
tags:
${pushed.join('\n')}
  GW-01:
    asset: ${GATEWAY_ASSET}
    values:
      load: { unit: { code: one }, from: self, reading: load1 }
      processor: { unit: { code: one }, from: self, reading: cpu_share }
      memory: { unit: { code: one }, from: self, reading: memory_share }
      disk: { unit: { code: one }, from: self, reading: disk_share }
`;
}

/** The folder may stand where nothing may be executed, so the shell is named; it is told one file, and parses nothing. */
function reactionsFile(command: string, reactionFile: string): string {
  return `reactions:
  - name: close-inlet-valve
    on: threshold_reached
    if: { tag: FT-101, threshold.type: high }
    do:
      - run: [/bin/sh, ${JSON.stringify(command)}, FT-101, ${JSON.stringify(reactionFile)}]
        timeout: 5s
`;
}

const COMMAND = `# Called by the reaction with the tag and a file; the event's JSON is on standard input.
cat > "$2.part" && mv "$2.part" "$2"
echo "the valve of $1 closes"
`;
