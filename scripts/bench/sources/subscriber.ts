/** A subscriber that is to confirm everything that is published: a process of its own. */
export interface Subscriber {
  name: string;
  start(port: number): Promise<void>;
  pid(): number;
  taken(): Promise<number>;
  stop(): Promise<void>;
}
