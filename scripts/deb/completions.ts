import { type Argument, Command, type Option } from 'commander';
import { VERBS } from '../../src/commands/command-line.ts';

/** `completions.ts zsh|fish`: what these shells complete of tagferry, from the verbs as the program itself defines them. */
interface Word {
  /** Its names, the one that is offered first. */
  names: readonly string[];
  description: string;
  options: readonly Option[];
  args: readonly Argument[];
  words: readonly Word[];
}

/** Options whose values are ids. */
const OBJECTS = { '--asset': 'asset', '--parent': 'asset', '--instrumentation': 'instrumentation' } as const;

const verbs: Word[] = [];
for (const { name, load } of VERBS) {
  const program = new Command('tagferry');
  (await load()).define(program);
  const verb = program.commands.find((command) => command.name() === name);
  if (!verb) throw new Error(`${name} defines no verb of its name`);
  verbs.push(wordOf(verb));
}
console.log((process.argv[2] === 'zsh' ? zsh(verbs) : fish(verbs)).join('\n'));
process.exit();

function wordOf(command: Command): Word {
  return {
    names: [command.name(), ...command.aliases()],
    description: command.description().split('\n')[0]!,
    options: command.options.filter((option) => !option.hidden),
    args: command.registeredArguments,
    words: command.commands.filter((sub) => sub.name() !== 'help').map(wordOf),
  };
}

/** What the value of an option or an argument is: some words, a file, a folder, an id that the gateway knows, or anything. */
type Value = { words: readonly string[] } | { objects: 'asset' | 'instrumentation' | '' } | 'file' | 'folder' | 'any';

function valueKind(name: string, choices?: readonly string[]): Value {
  if (choices !== undefined) return { words: choices };
  if (/^[a-z-]+(\|[a-z-]+)+$/.test(name)) return { words: name.split('|') };
  if (/^(file|path)$/.test(name)) return 'file';
  return /^(dir|folder)$/.test(name) ? 'folder' : 'any';
}

function optionValue(option: Option, name: string): Value {
  const objects = OBJECTS[option.long as keyof typeof OBJECTS];
  return objects === undefined ? valueKind(name, option.argChoices) : { objects };
}

/** The text of `assets` is an id or a name of an object. */
function argumentValue(word: Word, argument: Argument): Value {
  return word.names[0] === 'assets' ? { objects: '' } : valueKind(argument.name(), argument.argChoices);
}

/** `--level <level>` gives `level`; an option without a value gives nothing. */
function valueName(option: Option): string | undefined {
  return /[<[]([^>\]]+)[>\]]$/.exec(option.flags)?.[1]?.replace('...', '');
}

function zsh(all: readonly Word[]): string[] {
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  /** Brackets and colons have a meaning in a specification of `_arguments`. */
  const plain = (text: string) => text.replaceAll(/[[\]:\\]/g, '\\$&');
  const action = (value: Value) => {
    if (value === 'file') return '_files';
    if (value === 'folder') return '_files -/';
    if (value === 'any') return ' ';
    // Behind a space nothing is added to the words.
    return 'objects' in value ? ` _tagferry_objects ${value.objects}`.trimEnd() : `(${value.words.join(' ')})`;
  };
  const option = (one: Option) => {
    const name = valueName(one);
    const value = name === undefined ? '' : `:${plain(name)}:${action(optionValue(one, name))}`;
    return quoted(`*${one.long}[${plain(one.description)}]${value}`);
  };
  const functionOf = (path: readonly string[]) => ['_tagferry', ...path].join('_').replaceAll('-', '_');
  const lines = (word: Word, path: readonly string[]): string[] => {
    const specs = [
      ...word.options.map(option),
      quoted('--config[configuration folder]:dir:_files -/'),
      quoted('(- *)--help[what it does]'),
    ];
    const described = word.words.map(({ names, description }) => quoted(`${names[0]}:${description}`));
    const own = word.args.map((arg) => {
      const place = arg.variadic ? '*' : arg.required ? ':' : '::';
      const head = place === '*' ? '*:' : place;
      return quoted(`${head}${plain(arg.name())}:${action(argumentValue(word, arg))}`);
    });
    if (word.words.length === 0)
      return [`${functionOf(path)}() {`, `  _arguments -s \\`, ...joined([...specs, ...own]), '}', ''];
    return [
      `${functionOf(path)}() {`,
      `  local curcontext="$curcontext" state line`,
      '  typeset -A opt_args',
      '  local -a words_here',
      `  words_here=(${described.join(' ')})`,
      '  _arguments -C -s \\',
      ...joined([...specs, quoted('1:verb:->verb'), quoted('*::argument:->argument')]),
      '  case $state in',
      '    verb) _describe verb words_here ;;',
      '    argument)',
      '      case $line[1] in',
      ...word.words.map((sub) => `        ${sub.names.join('|')}) ${functionOf([...path, sub.names[0]!])} ;;`),
      '      esac ;;',
      '  esac',
      '}',
      '',
      ...word.words.flatMap((sub) => lines(sub, [...path, sub.names[0]!])),
    ];
  };
  const top: Word = { names: ['tagferry'], description: '', options: [], args: [], words: all };
  return [
    '#compdef tagferry',
    '# Made from the program by scripts/deb/completions.ts.',
    '',
    '# Ids and names that this gateway knows, each with what it names.',
    '_tagferry_objects() {',
    '  local -a found',
    `  found=(\${(f)"$(tagferry assets --complete $1 2>/dev/null)"})`,
    `  compadd -l -d found - \${found%%$'\\t'*}`,
    '}',
    '',
    ...lines(top, []),
    '_tagferry "$@"',
  ];
}

/** Lines of one command of zsh, each but the last with the sign that it goes on. */
function joined(parts: readonly string[]): string[] {
  return parts.map((part, i) => `    ${part}${i === parts.length - 1 ? '' : ' \\'}`);
}

function fish(all: readonly Word[]): string[] {
  const quoted = (text: string) => `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
  const path = (words: readonly Word[]) => words.map(({ names }) => names.join(',')).join(' ');
  const value = (kind: Value) => {
    if (kind === 'file') return ' -rF';
    if (kind === 'folder') return ` -xa '(__fish_complete_directories)'`;
    if (kind === 'any') return ' -x';
    if ('objects' in kind) return ` -xa '(${`tagferry assets --complete ${kind.objects}`.trimEnd()} 2>/dev/null)'`;
    return ` -xa ${quoted(kind.words.join(' '))}`;
  };
  const lines = (word: Word, above: readonly Word[]): string[] => {
    const here = [...above, word];
    const subs = word.words.flatMap(({ names }) => names).join(',');
    const when = quoted(`__tagferry_in ${quoted(subs).replaceAll("'", '"')} ${path(here)}`);
    return [
      ...word.words.map(
        ({ names, description }) => `complete -c tagferry -n ${when} -a ${names[0]} -d ${quoted(description)}`,
      ),
      ...word.options.map((one) => {
        const name = valueName(one);
        const takes = name === undefined ? '' : value(optionValue(one, name));
        return `complete -c tagferry -n ${when} -l ${one.long!.slice(2)}${takes} -d ${quoted(one.description)}`;
      }),
      ...word.args.flatMap((arg) => {
        const kind = argumentValue(word, arg);
        if (kind === 'any') return [];
        return [`complete -c tagferry -n ${when} ${kind === 'file' ? '-F' : value(kind).replace(' -xa', '-a')}`];
      }),
      ...word.words.flatMap((sub) => lines(sub, here)),
    ];
  };
  return [
    '# Made from the program by scripts/deb/completions.ts.',
    '',
    '# The words of the line that are no options: __tagferry_in SUBS WORD… is true where they begin with WORD…, each of them several names',
    '# with commas, and none of SUBS comes next.',
    'function __tagferry_in',
    '    set -l words',
    '    set -l skip no',
    '    for token in (commandline -opc)[2..-1]',
    '        if test $skip = yes',
    '            set skip no',
    '        else if test $token = --config',
    '            set skip yes',
    "        else if not string match -q -- '-*' $token",
    '            set -a words $token',
    '        end',
    '    end',
    '    set -l subs $argv[1]',
    '    for wanted in $argv[2..-1]',
    '        test (count $words) -gt 0; or return 1',
    '        contains -- $words[1] (string split , $wanted); or return 1',
    '        set -e words[1]',
    '    end',
    '    test (count $words) -eq 0; and return 0',
    '    not contains -- $words[1] (string split , $subs)',
    'end',
    '',
    'complete -c tagferry -f',
    "complete -c tagferry -l config -xa '(__fish_complete_directories)' -d 'configuration folder'",
    "complete -c tagferry -l help -s h -d 'what it does'",
    `complete -c tagferry -n ${quoted(`__tagferry_in "${all.flatMap(({ names }) => names).join(',')}"`)} -l version -s V -d 'the version'`,
    ...all.map(
      ({ names, description }) =>
        `complete -c tagferry -n ${quoted(`__tagferry_in "${all.flatMap((verb) => verb.names).join(',')}"`)} -a ${names[0]} -d ${quoted(description)}`,
    ),
    ...all.flatMap((verb) => lines(verb, [])),
  ];
}
