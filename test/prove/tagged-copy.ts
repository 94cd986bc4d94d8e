import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');

/** Time of the commit. */
export const EPOCH = Date.UTC(2026, 10, 1, 12) / 1000;

/** Commits and tags a copy of this checkout, whose changelog has a date. Returns the tag. */
export function taggedCopy(folder: string): string {
  const git = (cwd: string, ...args: string[]) => execFileSync('git', args, { cwd, encoding: 'utf8' });
  for (const file of git(ROOT, 'ls-files', '-co', '--exclude-standard').trim().split('\n')) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    cpSync(join(ROOT, file), join(folder, file), { verbatimSymlinks: true });
  }
  const changelog = join(folder, 'CHANGELOG.md');
  writeFileSync(changelog, readFileSync(changelog, 'utf8').replace('(unreleased)', '(2026-11-01)'));
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  const date = `${EPOCH} +0000`;
  const env = { ...process.env, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date };
  const who = ['-c', 'user.name=release', '-c', 'user.email=release@tagferry.invalid', '-c', 'commit.gpgsign=false'];
  git(folder, 'init', '--quiet');
  git(folder, 'add', '--all');
  execFileSync('git', [...who, 'commit', '--quiet', '-m', 'The release'], { cwd: folder, env });
  git(folder, 'tag', `v${version}`);
  mkdirSync(join(ROOT, '.cache'), { recursive: true });
  for (const shared of ['node_modules', '.cache']) symlinkSync(join(ROOT, shared), join(folder, shared));
  return `v${version}`;
}
