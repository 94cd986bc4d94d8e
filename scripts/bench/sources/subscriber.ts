/** A subscriber in a separate process. */
export interface Subscriber {
  name: string;
  start(port: number): Promise<void>;
  pid(): number;
  taken(): Promise<number>;
  stop(): Promise<void>;
}
