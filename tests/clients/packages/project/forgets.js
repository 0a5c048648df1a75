// Does not stop its server.
require("rowhouse")
  .start()
  .then((server) => console.log(server.pid));
