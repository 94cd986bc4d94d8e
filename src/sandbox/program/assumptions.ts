import { UsageError } from '../../base/errors.ts';
import { insteadOf } from '../../base/nearest.ts';
import { readDuration } from '../../base/quantity.ts';
import { EVENT_TIMES } from '../events/event-time.ts';
import { CAN_PERMIT_OFFSET, offsetProblem } from '../permissions/id-offsets.ts';
import { INHERITANCE, ruleName } from '../permissions/inheritance.ts';
import type { SandboxOptions } from '../sandbox.ts';
import { STRICT_RULE_NAMES, STRICT_RULES, type StrictRule } from '../strictness.ts';

interface Assumption {
  /** What is assumed unless told. */
  default: string;
  /** Where the spec is silent. */
  spec: string;
  what: string;
  /** What `--strict` sets it to. */
  strict?: string;
  apply(options: SandboxOptions, text: string): void;
}

/** What the spec calls "not shown" and the sandbox has to assume: `--assume name=value` assumes something else. */
const ASSUMPTIONS: Readonly<Record<string, Assumption>> = {
  'can-permit-offset': {
    default: String(CAN_PERMIT_OFFSET),
    spec: '2.2',
    what: 'offset of can_permit in v1 permission ids',
    apply: (options, text) => {
      const offset = /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
      const problem = offsetProblem(offset);
      if (problem !== undefined) throw new UsageError(`can-permit-offset ${JSON.stringify(text)} ${problem}`);
      options.canPermitOffset = offset;
    },
  },
  inheritance: {
    default: INHERITANCE.map(ruleName).join(','),
    spec: '2.2',
    what: 'edges of the model graph, by comma; empty is none',
    apply: (options, text) => {
      const names = text === '' ? [] : text.split(',').map((name) => name.trim());
      options.inheritance = names.map((name) => oneOf(name, INHERITANCE.map(ruleName)));
    },
  },
  'edge-device-offline': {
    default: '5m',
    spec: '3.4',
    what: 'an edge device that was seen goes offline after this time without a sign of life; 0 is never',
    apply: (options, text) => {
      options.edgeDeviceOfflineAfterMs = duration(text);
    },
  },
  threshold: {
    default: 'crossing',
    spec: '6.3',
    what: 'when a threshold is reached: at the crossing, or by every value beyond',
    apply: (options, text) => {
      options.everyThresholdValue = oneOf(text, ['crossing', 'every']) === 'every';
    },
  },
  'webhook-timeout': {
    default: '10s',
    spec: '6.1',
    what: 'how long a receiver may take',
    apply: (options, text) => {
      options.webhookTimeoutMs = Math.max(1, duration(text));
    },
  },
  'deliveries-under': {
    default: 'events',
    spec: '4.5',
    what: 'member that holds the deliveries list',
    apply: (options, text) => {
      options.deliveriesUnder = oneOf(text, ['events', 'webhook_events'] as const);
    },
  },
  'after-sunset': {
    default: '410',
    spec: '9',
    what: 'what a v1 endpoint answers after its sunset',
    apply: (options, text) => {
      options.afterSunsetStatus = Number(oneOf(text, ['404', '410', '400', '403']));
    },
  },
  'api-key-header': {
    default: '',
    spec: '5.5',
    what: 'header that has to hold the client id beside the token; empty is none',
    apply: (options, text) => {
      if (!/^[A-Za-z0-9-]*$/.test(text)) throw new UsageError(`${JSON.stringify(text)} is no name of a header`);
      options.apiKeyHeader = text;
    },
  },
  'event-times': {
    default: 'Z',
    spec: '6.2',
    what: 'how events write their time: in UTC, bare (without offset), or with the offset +02:00',
    apply: (options, text) => {
      options.eventTimes = oneOf(text, EVENT_TIMES);
    },
  },
  ...Object.fromEntries(
    STRICT_RULE_NAMES.map((rule) => {
      const { lax, strict, spec, what } = STRICT_RULES[rule];
      return [rule, { default: lax, strict, spec, what, apply: strictnessOf(rule, lax, strict) }];
    }),
  ),
};

function strictnessOf(rule: StrictRule, lax: string, strict: string): Assumption['apply'] {
  return (options, text) => {
    const others = (options.strict ?? []).filter((one) => one !== rule);
    options.strict = oneOf(text, [lax, strict]) === strict ? [...others, rule] : others;
  };
}

/** Reads `--assume name=value` flags into options. Throws `UsageError` with the nearest name. */
export function assume(options: SandboxOptions, flags: readonly string[]): void {
  for (const flag of flags) {
    const at = flag.indexOf('=');
    const name = at < 0 ? flag : flag.slice(0, at);
    const assumption = Object.hasOwn(ASSUMPTIONS, name) ? ASSUMPTIONS[name] : undefined;
    if (assumption === undefined) {
      throw new UsageError(`--assume ${name} is unknown`, hint(insteadOf(name, Object.keys(ASSUMPTIONS))));
    }
    if (at < 0) throw new UsageError(`--assume ${name} says nothing`, `Write ${name}=${assumption.default}.`);
    assumption.apply(options, flag.slice(at + 1));
  }
}

/** For the help text. */
export function assumptionsText(): string {
  const lines = Object.entries(ASSUMPTIONS).map(([name, { default: usual, what, spec, strict }]) => {
    const more = strict === undefined ? `not shown in spec ${spec}` : `spec ${spec}; --strict: ${strict}`;
    return `  ${name}=${usual}\n      ${what} (${more})`;
  });
  return `What --assume may change:\n${lines.join('\n')}`;
}

function oneOf<const Text extends string>(text: string, known: readonly Text[]): Text {
  const found = known.find((one) => one === text);
  if (found === undefined) throw new UsageError(`${JSON.stringify(text)} is none of ${known.join(', ')}`);
  return found;
}

function duration(text: string): number {
  const reading = readDuration(text);
  if ('value' in reading) return reading.value;
  throw new UsageError(`${text} ${reading.reason}`, hint(reading.instead));
}

function hint(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
