// Starts two servers and waits to be killed.
const { start } = require("rowhouse");

setInterval(() => {}, 60_000);
Promise.all([start(), start()]).then((servers) => servers.forEach((server) => console.log(server.pid)));
