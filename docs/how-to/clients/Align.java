// A client of mx-serve without libraries: java Align.java de-en pairs.jsonl
// Each line of the file is {"src": "...", "tgt": "..."}; each line printed is its answer.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;

public class Align {
    public static void main(String[] args) throws Exception {
        String base = System.getenv().getOrDefault("MX_SERVE", "http://127.0.0.1:8017");
        HttpRequest.Builder request = HttpRequest.newBuilder()
            .uri(URI.create(base + "/align?offsets=utf16&langs=" + args[0]))
            .header("Content-Type", "application/x-ndjson")
            .POST(HttpRequest.BodyPublishers.ofFile(Path.of(args[1])));
        String token = System.getenv("MX_SERVE_TOKEN");
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        HttpResponse<java.util.stream.Stream<String>> response =
            client.send(request.build(), HttpResponse.BodyHandlers.ofLines());
        response.body().forEach(System.out::println);
        System.exit(response.statusCode() == 200 ? 0 : 1);
    }
}
