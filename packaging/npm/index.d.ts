/** What a server is started with. */
export interface Options {
  /** Where tables are stored; `sqlite::memory:` unless given. Tests may delete all of it. */
  databaseUrl?: string;
  /** The port for tables; a free one unless given. */
  port?: number;
  /** The port for operators; a free one unless given. */
  adminPort?: number;
  /** More arguments of `rowhouse serve`. */
  arguments?: readonly string[];
  /** More variables of its environment. Those of this process that are settings are left out. */
  env?: Readonly<Record<string, string>>;
  /** Milliseconds that it may take to start; 60 000 unless given. */
  timeout?: number;
}

/** What a fault does: exactly one of these. */
export type Fault =
  /** An error of the service by its code, such as `ServerBusy`. Nothing is stored. */
  | { error: string }
  /** Milliseconds to wait before the operation; 1 to 30 000. */
  | { delay: number }
  /** The connection ends without an answer: `before` anything is stored, or `after` all of it is. */
  | { disconnect: "before" | "after" }
  /** The maximum number of entities or tables in the answer to a query; 1 to 1000. */
  | { page: number };

/** A fault, and the requests that meet it: the first one that matches, unless `after` and `times` say otherwise. */
export type FaultRule = Fault & {
  /** Only this operation, by its name in metrics, such as `InsertEntity`. */
  operation?: string;
  /** Only requests that name this table, in any case. */
  table?: string;
  /** Matches before the first fault; 0 unless given. */
  after?: number;
  /** Matches that meet the fault; 1 unless given. */
  times?: number;
};

/** What a rule has counted. */
export interface FaultCount {
  /** Requests, and operations in batches, that matched. */
  matched: number;
  /** How many of them met the fault. */
  hits: number;
}

/** A running server in test mode. It ends with this process, even if that is killed. */
export interface Server {
  /** For clients of the SDK, with `{ allowInsecureConnection: true }`. */
  readonly connectionString: string;
  /** The address of the account, `http://127.0.0.1:PORT/devstoreaccount1`. */
  readonly endpoint: string;
  /** The address of the listener for operators, where snapshots and faults are ordered. */
  readonly adminUrl: string;
  readonly pid: number;
  /** Deletes all that is stored, and removes all faults. */
  reset(): Promise<void>;
  /** Takes a snapshot of all that is stored, and returns its name. A server keeps at most 64. */
  snapshot(): Promise<string>;
  /** Restores a snapshot, which stays: tables, policies, and entities with their ETags and timestamps. */
  restore(name: string): Promise<void>;
  /** Orders faults in place of those that were ordered before; none for an empty list. */
  setFaults(rules: readonly FaultRule[]): Promise<void>;
  /** The counts of all rules, in their order. */
  faults(): Promise<FaultCount[]>;
  /** Stops it, and waits until it has ended. */
  stop(): Promise<void>;
}

/** Starts a server, and waits until it is ready. Any number may run at a time. */
export function start(options?: Options): Promise<Server>;

/** The path of the program. */
export function binary(): string;
