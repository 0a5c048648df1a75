# docker build -t rowhouse .
# docker run -p 10002:10002 -v rowhouse:/data -e ROWHOUSE_ACCOUNTS="myaccount:$(openssl rand -base64 64 | tr -d '\n')" rowhouse
# To try it with the account that everybody knows, on this machine alone:
# docker run -p 127.0.0.1:10002:10002 -e ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT=true rowhouse

ARG BUILD_IMAGE=rust:1.95-slim-bookworm
ARG RUN_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# The dependencies are a layer of their own: it is built again only when they change.
COPY Cargo.toml Cargo.lock ./
COPY benches benches
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --release --locked --bin rowhouse \
    && rm -r src
COPY migrations migrations
COPY src src
# Cargo tells what changed by its date, which COPY takes from the checkout.
RUN touch src/main.rs src/lib.rs && cargo build --release --locked --bin rowhouse

FROM ${RUN_IMAGE}
# The root certificates are for PostgreSQL over TLS.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin rowhouse \
    && install -d -o rowhouse -g rowhouse /data
COPY --from=build /build/target/release/rowhouse /usr/local/bin/rowhouse
COPY LICENSE LICENSE-APACHE LICENSE-MIT /usr/share/doc/rowhouse/
USER rowhouse
WORKDIR /data
VOLUME /data
# Without DATABASE_URL, entities are in /data/rowhouse.db.
ENV ROWHOUSE_LISTEN=0.0.0.0:10002
EXPOSE 10002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["rowhouse", "healthcheck"]
ENTRYPOINT ["rowhouse"]
CMD ["serve"]
