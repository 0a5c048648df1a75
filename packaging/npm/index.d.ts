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

/** A running server in test mode. It ends with this process, even if that is killed. */
export interface Server {
  /** For clients of the SDK, with `{ allowInsecureConnection: true }`. */
  readonly connectionString: string;
  /** The address of the account, `http://127.0.0.1:PORT/devstoreaccount1`. */
  readonly endpoint: string;
  /** The address of the listener for operators, where snapshots and faults are ordered. */
  readonly adminUrl: string;
  readonly pid: number;
  /** Deletes all that is stored. */
  reset(): Promise<void>;
  /** Stops it, and waits until it has ended. */
  stop(): Promise<void>;
}

/** Starts a server, and waits until it is ready. Any number may run at a time. */
export function start(options?: Options): Promise<Server>;

/** The path of the program. */
export function binary(): string;
