import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parseAst } from 'vitest/node';

/**
 * Event names that the source can log, read from its syntax trees: literal values of `event` members, names passed to a
 * method that logs (`#log`, `report`, `recovered`), and composed names, which are listed here. Names that cannot be
 * read are reported, so that none is missed.
 */
export interface FoundEvents {
  /** Event names with the levels at which they are always logged; empty if the level is determined elsewhere. */
  events: Map<string, Set<string>>;
  /** `file:line: what`, to be checked manually. */
  unreadable: string[];
  /** `file:line: what`: log fields that do not follow docs/reference/logs.md: camelCase, `error` and `code`. */
  misnamed: string[];
  /** `file:line: message`: messages that begin with a capital letter or end with a full stop. */
  misworded: string[];
}

const SRC = join(import.meta.dirname, '../../src');
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'];
const NAME = /^[a-z]+\.[a-z0-9_]+$/;
/** Methods that log an event name passed as an argument. */
const TELLERS = [
  '#log',
  'report',
  'recovered',
  '#report',
  '#tell',
  '#say',
  '#debug',
  '#repeated',
  '#failed',
  '#warnOnce',
];

/** Composed names as written in the source, and their possible values. */
const COMPOSED: Readonly<Record<string, readonly string[]>> = {
  '`reaction.${reason}`': ['reaction.expired', 'reaction.cooldown'],
  '`source.${fault}`': ['source.not_a_number', 'source.no_value', 'source.out_of_range'],
  '`${kind}.unreadable`': ['mqtt.unreadable', 'nats.unreadable'],
  '`${kind}.unavailable`': ['mqtt.unavailable', 'nats.unavailable'],
};
/** Files in which an `event` member need not be a literal: the callers pass the name, or it is not a log event. */
const PASSED_ON = [
  'config/event-outline.ts',
  'sources/intake/trouble-log.ts',
  'reactions/engine/reaction-run.ts',
  'access/follower.ts',
  'uplink/uplink-log.ts',
  'sandbox/events/plant-changes.ts',
  'sandbox/permissions/visibility.ts',
];

/** Findings have event codes in `/healthz`, but are not logged. */
const FINDINGS = 'ops/findings.ts';

interface Node {
  type: string;
  start: number;
  [member: string]: unknown;
}

export function findLogEvents(): FoundEvents {
  const found: FoundEvents = { events: new Map(), unreadable: [], misnamed: [], misworded: [] };
  for (const entry of readdirSync(SRC, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.ts')) continue;
    const path = join(entry.parentPath, entry.name);
    if (relative(SRC, path) === FINDINGS) continue;
    const text = readFileSync(path, 'utf8');
    const tree = parseAst(text, { lang: 'ts' } as never) as unknown as Node;
    new Collector(relative(SRC, path), text, found).walk(tree);
  }
  return found;
}

class Collector {
  readonly #file: string;
  readonly #text: string;
  readonly #found: FoundEvents;

  constructor(file: string, text: string, found: FoundEvents) {
    this.#file = file;
    this.#text = text;
    this.#found = found;
  }

  walk(node: Node): void {
    if (node.type === 'ObjectExpression') this.#object(node);
    if (node.type === 'CallExpression') this.#call(node);
    for (const [key, value] of Object.entries(node)) {
      if (key === 'parent') continue;
      for (const child of Array.isArray(value) ? value : [value]) {
        if (typeof child === 'object' && child !== null && typeof (child as Node).type === 'string')
          this.walk(child as Node);
      }
    }
  }

  #object(node: Node): void {
    const member = memberOf(node, 'event');
    if (!member) return;
    const names = this.#namesOf(member);
    for (const name of names) this.#add(name);
    if (names.length > 0) for (const one of node.properties as Node[]) this.#field(one);
  }

  /** Checks the name of a field: `error` for the text of an error, and `code` for its code. */
  #field(member: Node): void {
    if (member.type !== 'Property') return;
    const name = String((member.key as Node).name ?? (member.key as Node).value);
    const value = this.#textOf(member.value as Node);
    const wanted = /^messageOf\(|^error\.message$/.test(value)
      ? 'error'
      : /^codeOf\(|^error\.code$/.test(value)
        ? 'code'
        : name;
    const camelCase = /^[a-z][a-zA-Z0-9]*$/.test(name);
    if (name === wanted && camelCase) return;
    const line = this.#text.slice(0, member.start).split('\n').length;
    this.#found.misnamed.push(`${this.#file}:${line}: ${name}${name === wanted ? '' : `, not ${wanted}`}`);
  }

  /** Checks a message, or both messages of a conditional expression. */
  #message(message: Node | undefined, call: Node): void {
    if (message?.type === 'ConditionalExpression') {
      this.#message(message.consequent as Node, call);
      this.#message(message.alternate as Node, call);
    }
    const text = message?.type === 'Literal' && typeof message.value === 'string' ? message.value : '';
    if (!/^(?:[A-Z][a-z]+|A) |[^.]\.$/.test(text)) return;
    const line = this.#text.slice(0, call.start).split('\n').length;
    this.#found.misworded.push(`${this.#file}:${line}: ${text}`);
  }

  #call(node: Node): void {
    const callee = node.callee as Node;
    if (callee.type !== 'MemberExpression') return;
    const property = callee.property as Node;
    const name = property.type === 'PrivateIdentifier' ? `#${property.name}` : String(property.name);
    const [first, second, third] = node.arguments as Node[];
    if (name === 'report' || name === 'recovered') this.#message(name === 'recovered' ? third : second, node);
    if (!callee.computed && TELLERS.includes(name)) this.#told(name, node.arguments as Node[]);
    const isLevel = callee.computed === true || LEVELS.includes(name);
    if (!isLevel || !/\b#?log(ger)?$/.test(this.#textOf(callee.object as Node)) || !first) return;
    this.#message(second, node);
    if (first.type === 'ObjectExpression') {
      const member = memberOf(first, 'event');
      if (!member && !hasSpread(first)) this.#report(node, 'a line of the log without an event');
      if (member && !callee.computed) for (const event of this.#namesOf(member)) this.#add(event, name);
    } else if (first.type === 'Literal' || first.type === 'TemplateLiteral') {
      this.#report(node, 'a line of the log without an event');
    }
  }

  #told(teller: string, args: Node[]): void {
    for (const arg of args.slice(0, 2)) {
      if (arg.type !== 'Literal' && arg.type !== 'ConditionalExpression' && arg.type !== 'TemplateLiteral') continue;
      for (const name of this.#namesOf(arg, true)) this.#add(teller === 'recovered' ? `${name}_over` : name);
    }
  }

  #namesOf(value: Node, quietly = false): string[] {
    if (value.type === 'ConditionalExpression') {
      return [...this.#namesOf(value.consequent as Node, quietly), ...this.#namesOf(value.alternate as Node, quietly)];
    }
    if (value.type === 'Literal') return NAME.test(String(value.value)) ? [String(value.value)] : [];
    const composed = COMPOSED[this.#textOf(value)];
    if (composed) return [...composed];
    if (!quietly && !PASSED_ON.includes(this.#file) && this.#mayBeName(value)) {
      this.#report(value, `an event whose name cannot be read: ${this.#textOf(value)}`);
    }
    return [];
  }

  /** Objects and calls are not log events; a variable, a member or a template can be a name. */
  #mayBeName(value: Node): boolean {
    return (
      value.type === 'TemplateLiteral' || (value.type === 'Identifier' && !/^(type|event)s?$/i.test(String(value.name)))
    );
  }

  #add(name: string, level?: string): void {
    const levels = this.#found.events.get(name) ?? new Set();
    if (level) levels.add(level);
    this.#found.events.set(name, levels);
  }

  #report(node: Node, what: string): void {
    const line = this.#text.slice(0, node.start).split('\n').length;
    this.#found.unreadable.push(`${this.#file}:${line}: ${what}`);
  }

  #textOf(node: Node): string {
    return this.#text.slice(node.start, node.end as number);
  }
}

function memberOf(object: Node, name: string): Node | undefined {
  const members = object.properties as Node[];
  const found = members.find((one) => one.type === 'Property' && (one.key as Node).name === name);
  return found && (found.value as Node);
}

function hasSpread(object: Node): boolean {
  return (object.properties as Node[]).some((one) => one.type === 'SpreadElement');
}
