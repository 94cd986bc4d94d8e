/** What `scripts/prove` does again, and what it does not: runs are known by part and name. */
import { expect, it } from 'vitest';
import { openTasks, tasksOf } from '../../scripts/prove.d/plan.ts';
import { type Kept, PARTS, resultsOf, type Task } from '../../scripts/prove.d/results.ts';

const HOUR_MS = 3_600_000;
const plan = (seed: number | undefined, soakMs = HOUR_MS) =>
  PARTS.flatMap((part) => tasksOf(part, { quick: false, seed, soakMs }));
const soakOf = (seed: number | undefined, soakMs = HOUR_MS) =>
  tasksOf('soak', { quick: false, seed, soakMs }).map(({ name }) => name);

function kept({ part, name }: Pick<Task, 'part' | 'name'>, wrong: string[] = []): Kept {
  return { part, name, at: '2026-01-02T03:04:05Z', wrong };
}

it('whatever is kept of a seed is not done again, the soak as all other parts', () => {
  const tasks = plan(7);
  expect(new Set(tasks.map(({ part }) => part))).toEqual(new Set(PARTS));
  const results = tasks.map((task) => kept(task));
  expect(openTasks(tasks, results)).toEqual([]);
  expect(openTasks(tasks, [])).toEqual(tasks);
  // But the control of the fast plug, which has no seed: one is enough.
  const others = plan(1_000);
  const left = others.filter(({ part, name }) => !(part === 'plug' && name.startsWith('control')));
  expect(openTasks(others, results)).toEqual(left);
});

it('a run in which something was wrong is done again, and a soak that was shorter than asked', () => {
  const [task] = tasksOf('soak', { quick: false, seed: 7, soakMs: HOUR_MS });
  expect(openTasks([task!], [kept(task!, ['1 values missing'])])).toEqual([task]);
  const [shorter] = soakOf(7, 60_000);
  expect(openTasks([task!], [kept({ part: 'soak', name: shorter! })])).toEqual([task]);
});

it('of several soaks that are kept the report shows the one that is asked for', () => {
  const results = [7, 8].flatMap((seed) => soakOf(seed).map((name) => kept({ part: 'soak', name })));
  const asked = tasksOf('soak', { quick: false, seed: 7, soakMs: HOUR_MS });
  expect(resultsOf(asked, results).map(({ name }) => name)).toEqual(soakOf(7));
});
