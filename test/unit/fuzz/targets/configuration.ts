import { parseEnvFile } from '../../../../src/config/env-file.ts';
import { parsePlacedYaml } from '../../../../src/config/placed-yaml.ts';
import { readPlainYaml } from '../../../../src/config/plain-yaml.ts';
import { Problems, problemLine } from '../../../../src/config/problem.ts';
import { readForm } from '../../../../src/config/setting-forms.ts';
import { AGENT_ENV_KEYS, KEY_NAMES, settingKey } from '../../../../src/config/setting-keys.ts';
import { parseYaml } from '../../../../src/config/yaml-file.ts';
import { fillYaml } from '../../../../src/config/yaml-part.ts';
import { demand, demandSame, type FuzzTarget } from '../target.ts';

const LIMITS = { nodes: 2_000, depth: 40, nameLength: 256 };
const PLACEHOLDERS = { hostname: 'gw-7', environment: { LINE: 'a: b' } };

const yaml: FuzzTarget = {
  name: 'yaml',
  seeds: [
    'tags:\n  FT-101: {asset: 881, values: {flow: {unit: 12}}}\n',
    'tags:\n  - name: "FT 101" # here\n    every: 5s\n    at: [1, 2.5, true, ~]\n',
    'a: &x [1]\nb: *x\nc: !!str 1\n',
    'text: |\n  two\n  lines\n? k\n: v\n',
    `"a\\u0041": 'it''s'\n$\{LINE}: "$$\{x} $\{HOSTNAME}"\n`,
    '{a: 0x1f, b: 0o17, c: .inf, d: 1e5, e: 007, f: 2026-11-21}\n',
  ],
  run(bytes) {
    const text = bytes.toString('utf8');
    const problems = new Problems();
    const file = parseYaml(text, 'tags.yaml', problems);
    for (const problem of problems.list) demand(!problemLine(problem).includes('\n'), 'a problem has two lines');
    if (file) {
      file.placeOf('/tags/FT-101');
      fillYaml(file, PLACEHOLDERS, new Problems());
    } else demand(problems.list.length > 0, 'a file is refused without a word');
    const plain = readPlainYaml(text, LIMITS);
    if (plain === undefined) return;
    const mistakes = new Problems();
    const placed = parsePlacedYaml(text, 'tags.yaml', LIMITS, mistakes);
    demand(mistakes.list.length === 0, `the short way takes what the long one refuses: ${mistakes.list[0]?.reason}`);
    demandSame('the short way and the long one', plain, placed?.data);
  },
};

const agentEnv: FuzzTarget = {
  name: 'agent-env',
  seeds: [
    "PLATFORM_URL=https://api.example.com # here\nCLIENT_SECRET='a\"b'\n",
    'export POST_INTERVAL="10s"\r\n; a comment\nBUFFER_MIN_FREE=5%\nINGEST_LISTEN=127.0.0.1:8086\n',
    'INGEST_HOSTS=gw.example.com, [::1]\nEVENTS=asset_created,*\nVALUES_PATH=/v1/assets/{asset_id}/values\n',
    'CLIENT_SECRET_FILE=/run/x\nnonsense\nTECHNICAL_PASSWORD="a\\n\\$\\"b\\\\"\n',
  ],
  run(bytes) {
    const problems = new Problems();
    const file = parseEnvFile(bytes.toString('utf8'), 'agent.env', AGENT_ENV_KEYS, problems);
    for (const problem of problems.list) demand(!problemLine(problem).includes('\n'), 'a problem has two lines');
    for (const key of KEY_NAMES) {
      file.placeFor(key);
      const value = file.lines.get(key)?.value;
      if (value === undefined) continue;
      const reading = readForm(settingKey(key).form, value);
      demand('value' in reading || reading.reason !== '', `${key} is refused without a word`);
    }
  },
};

export const CONFIGURATION = [yaml, agentEnv];
